"""The sources of a target and of all that it depends on, as data of a test."""

_SourcesInfo = provider(fields = ["files"])

def _collect_impl(_target, ctx):
    own, transitive = [], []
    for name in ["srcs", "hdrs", "textual_hdrs", "deps"]:
        for value in getattr(ctx.rule.attr, name, []):
            if _SourcesInfo in value:
                transitive.append(value[_SourcesInfo].files)
            elif name != "deps":
                own += [f for f in value.files.to_list() if f.is_source]
    return [_SourcesInfo(files = depset(own, transitive = transitive))]

# Not through aliases: behind that of the CUDA runtime is the emulator.
_collect = aspect(
    implementation = _collect_impl,
    attr_aspects = ["srcs", "hdrs", "deps"],
)

def _sources_impl(ctx):
    files = depset(transitive = [target[_SourcesInfo].files for target in ctx.attr.targets])
    mine = [f for f in files.to_list() if not f.path.startswith("external/")]
    return [DefaultInfo(files = depset(mine), runfiles = ctx.runfiles(files = mine))]

sources = rule(
    implementation = _sources_impl,
    attrs = {"targets": attr.label_list(aspects = [_collect])},
)
