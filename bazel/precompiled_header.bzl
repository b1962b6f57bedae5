"""Precompiled headers. BUILD files use brigade_cc_test (bazel/cc.bzl), not this."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _precompiled_header_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file("%s/%s" % (ctx.attr.name, ctx.file.header.basename))
    precompiled = ctx.actions.declare_file(header.basename + ".gch", sibling = header)
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ctx.attr.copts + ["-x", "c++-header"],
    )
    compile = {"feature_configuration": features, "action_name": "c++-compile"}
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(**compile),
        arguments = cc_common.get_memory_inefficient_command_line(variables = variables, **compile),
        env = cc_common.get_environment_variables(variables = variables, **compile),
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s for %s" % (ctx.file.header.short_path, ctx.label),
    )
    return [
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([header, precompiled]),
            quote_includes = depset([header.dirname]),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = """Compiles a header of the system's libraries once for the files that have it as a dep
and `-include` its name first, with the same copts. A compiler that cannot use the result, because
other flags differ, takes the header itself.""",
    attrs = {
        "copts": attr.string_list(),
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "_cc_toolchain": attr.label(
            default = Label("@rules_cc//cc:current_cc_toolchain"),
        ),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)
