"""Compilation of .cu files. BUILD files use the macros of bazel/cuda.bzl, not this."""

load("@local_cuda//:defs.bzl", "NVCC", "NVCC_TAKES_SEED", "NVCC_VERSION")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//bazel:cc.bzl", "BIT_COPTS", "FLOAT_COPTS")

# As BIT_COPTS on the host: same bits.
CUDA_BIT_COPTS = [
    "--fmad=false",
]

# What the code needs in order to compile.
CUDA_COPTS = [
    "--extended-lambda",
    "--expt-relaxed-constexpr",
]

_ArchsInfo = provider(fields = ["archs"])
_BoolInfo = provider(fields = ["enabled"])

def _number(arch):
    """90 of "90" and of "90a"."""
    digits = arch.rstrip("af")
    if not digits.isdigit() or len(arch) - len(digits) > 1:
        fail(
            "//bazel:cuda_archs: '%s' is not an architecture; " % arch +
            "expected a list as in 80,90,100",
        )
    return int(digits)

def _cuda_archs_flag_impl(ctx):
    archs = [arch.strip() for arch in ctx.build_setting_value.split(",")]
    return _ArchsInfo(archs = [pair[1] for pair in sorted([(_number(a), a) for a in archs])])

cuda_archs_flag = rule(
    implementation = _cuda_archs_flag_impl,
    build_setting = config.string(flag = True),
)

def _bool_flag_impl(ctx):
    return _BoolInfo(enabled = ctx.build_setting_value)

bool_flag = rule(
    implementation = _bool_flag_impl,
    build_setting = config.bool(flag = True),
)

def _arch_flags(archs, emulated):
    flags = []
    if emulated:
        # The emulator reads PTX out of the object.
        flags.append("--no-compress")
    else:
        for arch in archs:
            flags += ["-gencode", "arch=compute_%s,code=sm_%s" % (arch, arch)]
    return flags + ["-gencode", "arch=compute_%s,code=compute_%s" % (archs[-1], archs[-1])]

def _flags(ctx):
    """nvcc's flags that are the same for every file of the target."""
    werror = ctx.attr._werror[_BoolInfo].enabled
    warnings = ["--Werror=all-warnings", "--Wreorder"] if werror else []
    flags = ["-std=c++20"] + CUDA_BIT_COPTS + CUDA_COPTS + warnings + [
        "-Xcompiler=-fPIC,%s-Wno-unused-parameter" % ("-Wall,-Wextra," if werror else ""),
        "-Xcompiler=" + ",".join(BIT_COPTS + FLOAT_COPTS),
        "-Xptxas=-v",
    ]
    mode = ctx.var["COMPILATION_MODE"]
    flags += {"dbg": ["-g", "-O0"], "fastbuild": ["-O1"], "opt": ["-O3", "-DNDEBUG"]}[mode]
    if ctx.attr._lineinfo[_BoolInfo].enabled or ctx.attr.emulated:
        flags.append("-lineinfo")
    archs = [ctx.attr.arch] if ctx.attr.arch else ctx.attr._archs[_ArchsInfo].archs
    return flags + _arch_flags(archs, ctx.attr.emulated)

def _directory(ctx):
    """Two, so that going back and forth compiles nothing."""
    return ctx.attr.directory + ("_emulated" if ctx.attr.emulated else "")

def _iquote(path):
    return "-Xcompiler=-iquote," + path

def _compile(ctx, cc_toolchain, compilation, header_list, src):
    stem = src.basename[:-len(".cu")]
    prefix = "%s/%s" % (_directory(ctx), stem)
    obj = ctx.actions.declare_file(prefix + ".pic.o")
    ptx = ctx.actions.declare_file(prefix + ".ptx")
    resources = ctx.actions.declare_file(prefix + ".resources.txt")
    unused = ctx.actions.declare_file(prefix + ".unused_headers.txt")

    args = ctx.actions.args()
    args.add_all([obj, ptx, resources, unused, header_list])
    args.add_all([NVCC, "-ccbin", cc_toolchain.compiler_executable])
    args.add_all(_flags(ctx))

    # Names inside the object otherwise depend on the process; unique per file, as nvcc asks for.
    if NVCC_TAKES_SEED:
        args.add("-frandom-seed=%s" % obj.short_path)
    args.add_all(compilation.defines, format_each = "-D%s")
    args.add_all(ctx.attr.local_defines, format_each = "-D%s")
    args.add_all(compilation.includes, format_each = "-I%s")
    args.add_all(compilation.quote_includes, map_each = _iquote)
    args.add_all(compilation.system_includes, before_each = "-isystem")
    args.add_all(ctx.attr.copts)
    args.add(src)

    ctx.actions.run(
        executable = ctx.executable._wrapper,
        arguments = [args],
        inputs = depset([src, header_list], transitive = [compilation.headers]),
        outputs = [obj, ptx, resources, unused],
        unused_inputs_list = unused,
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % src.short_path,
        env = {
            "NVCC_VERSION": NVCC_VERSION,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        },
    )
    return obj, ptx, resources

def _nvcc_compile_impl(ctx):
    cc_toolchain = find_cc_toolchain(ctx)
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context

    # The wrapper subtracts from it what the compiler read.
    header_list = ctx.actions.declare_file(_directory(ctx) + "/headers.txt")
    headers = ctx.actions.args()
    headers.set_param_file_format("multiline")
    headers.add_all(compilation.headers)
    ctx.actions.write(header_list, headers)

    objs, ptxs, reports = [], [], []
    for src in ctx.files.srcs:
        obj, ptx, resources = _compile(ctx, cc_toolchain, compilation, header_list, src)
        objs.append(obj)
        ptxs.append(ptx)
        reports.append(resources)
    return [
        DefaultInfo(files = depset(objs)),
        OutputGroupInfo(ptx = depset(ptxs), resources = depset(reports)),
    ]

nvcc_compile = rule(
    implementation = _nvcc_compile_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "local_defines": attr.string_list(),
        "directory": attr.string(mandatory = True),
        "emulated": attr.bool(),
        # Instead of //bazel:cuda_archs.
        "arch": attr.string(),
        "_archs": attr.label(default = "//bazel:cuda_archs"),
        "_lineinfo": attr.label(default = "//bazel:cuda_lineinfo"),
        "_werror": attr.label(default = "//bazel:werror"),
        "_wrapper": attr.label(
            default = "//bazel:nvcc.sh",
            executable = True,
            allow_single_file = True,
            cfg = "exec",
        ),
        "_cc_toolchain": attr.label(default = "@rules_cc//cc:current_cc_toolchain"),
    },
    toolchains = use_cc_toolchain(),
    fragments = ["cpp"],
)
