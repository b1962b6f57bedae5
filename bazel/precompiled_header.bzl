"""Precompiled headers. BUILD files use brigade_cc_test (bazel/cc.bzl), not this."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
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
            default = Label("@bazel_tools//tools/cpp:current_cc_toolchain"),
        ),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
