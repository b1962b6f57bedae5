"""Everything that a workspace with Brigade in it needs; nothing is downloaded.

    local_repository(name = "brigade", path = "...")
    load("@brigade//bazel:repositories.bzl", "brigade_dependencies")
    brigade_dependencies()
"""

load("//bazel:cuda_configure.bzl", "cuda_configure")
load("//bazel:stand_ins.bzl", "stand_in")
load("//bazel:system_libraries.bzl", "system_libraries")

# Bazel asks for these by name and would otherwise download them.
_STAND_INS = [
    "bazel_skylib",
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_python",
    "rules_shell",
]

def brigade_dependencies():
    """Defines @system, @local_cuda and what Bazel wants; a repository that exists already stays."""
    if not native.existing_rule("system"):
        system_libraries(name = "system")
    if not native.existing_rule("local_cuda"):
        cuda_configure(name = "local_cuda")
    for name in _STAND_INS:
        if not native.existing_rule(name):
            stand_in(name = name, repository = name)
