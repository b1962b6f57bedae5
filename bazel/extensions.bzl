"""The module extension of MODULE.bazel: @system and @local_cuda.

Abseil, Highway and JSON come from the registry for whoever depends on Brigade, and from the
machine's packages where Brigade itself is built. The root module may choose for each:

    brigade = use_extension("@brigade//bazel:extensions.bzl", "brigade")
    brigade.libraries(from_system = ["abseil-cpp", "highway", "nlohmann_json"])

All else (Gloo, OpenBLAS, MPI, the CUDA toolkit) is looked for on the machine.
"""

load("//bazel:cuda_configure.bzl", "cuda_configure")
load("//bazel:system_libraries.bzl", "MODULES", "system_libraries")

_libraries = tag_class(
    attrs = {
        "from_registry": attr.string_list(doc = "modules whose libraries are to be built"),
        "from_system": attr.string_list(doc = "modules whose libraries the machine has"),
    },
    doc = "Where libraries come from. For the root module alone: a process has one Abseil.",
)

def _choose(tag, chosen):
    for origin, names in [("registry", tag.from_registry), ("system", tag.from_system)]:
        for name in names:
            if name not in MODULES:
                fail("brigade.libraries: '%s' is not one of %s" % (name, ", ".join(MODULES)))
            if chosen.get(name, origin) != origin:
                fail("brigade.libraries: '%s' is to come from the registry and the system" % name)
            chosen[name] = origin

def _brigade_impl(ctx):
    default = "registry"
    chosen = {}
    for module in ctx.modules:
        if module.is_root and module.name == "brigade":
            default = "system"
        for tag in module.tags.libraries:
            if not module.is_root:
                fail(
                    "brigade.libraries is for the root module, and '%s' is none; " % module.name +
                    "give its use_extension dev_dependency = True",
                )
            _choose(tag, chosen)
    system_libraries(
        name = "system",
        from_registry = [name for name in MODULES if chosen.get(name, default) == "registry"],
    )
    cuda_configure(name = "local_cuda")

brigade = module_extension(
    implementation = _brigade_impl,
    tag_classes = {"libraries": _libraries},
)
