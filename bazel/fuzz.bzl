"""brigade_fuzz_test: code that reads bytes from outside, under libFuzzer. See tests/fuzzing."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")
load(":cc.bzl", "brigade_cc_binary", "common")

def brigade_fuzz_test(name, srcs, deps = [], **kwargs):
    """A test that gives bytes to the function LLVMFuzzerTestOneInput of its sources.

    x_fuzz_test makes the program x_fuzz, and takes inputs from the folder x_fuzz_corpus and, if
    there is one, words that inputs are made of from x_fuzz.dict (libFuzzer's format). It replays
    the corpus; with --config=fuzz libFuzzer goes on from there.

    Args:
      name: x_fuzz_test.
      srcs: its sources.
      deps: its deps, besides //tests/fuzzing:checks.
      **kwargs: as in cc_binary.
    """
    if not name.endswith("_fuzz_test"):
        fail("'%s': the name of a fuzz test ends with _fuzz_test" % name)
    program = name[:-len("_test")]
    corpus = native.glob([program + "_corpus/*"])
    if not corpus:
        fail("//%s:%s_corpus is empty" % (native.package_name(), program))
    kwargs["testonly"] = True
    fuzzing = str(Label("//bazel:fuzzing"))
    brigade_cc_binary(
        name = program,
        help = False,
        srcs = srcs,
        deps = deps + [str(Label("//tests/fuzzing:checks"))] + select({
            fuzzing: [],
            "//conditions:default": [str(Label("//tests/fuzzing:replay"))],
        }),
        linkopts = select({
            fuzzing: ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        **kwargs
    )
    attributes = common(kwargs)
    attributes["tags"] = attributes.get("tags", []) + ["fuzz"]
    sh_test(
        name = name,
        size = "small",
        srcs = [str(Label("//tests/fuzzing:run.sh"))],
        args = ["$(rootpath :%s)" % program, native.package_name() + "/" + program],
        data = [":" + program] + corpus + native.glob([program + ".dict"]),
        **attributes
    )
