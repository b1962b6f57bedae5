"""The source files of libraries and of all that they need, for a build without Bazel."""

_Sources = provider(fields = ["files"])

def _of(rule, attribute):
    return [file for file in getattr(rule.files, attribute, []) if file.is_source]

def _sources_aspect_impl(_target, ctx):
    own = []
    for attribute in ["srcs", "hdrs", "textual_hdrs"]:
        own += _of(ctx.rule, attribute)
    needed = []
    for attribute in ["deps", "srcs"]:
        needed += getattr(ctx.rule.attr, attribute, [])
    return [_Sources(files = depset(
        own,
        transitive = [dep[_Sources].files for dep in needed if _Sources in dep],
    ))]

_sources_aspect = aspect(
    implementation = _sources_aspect_impl,
    attr_aspects = ["deps", "srcs"],
)

def _library_sources_impl(ctx):
    files = depset(transitive = [dep[_Sources].files for dep in ctx.attr.deps])

    # Of other repositories there are none but the toolkit's headers.
    own = depset([file for file in files.to_list() if not file.owner.workspace_name])
    return [DefaultInfo(files = own, runfiles = ctx.runfiles(transitive_files = own))]

library_sources = rule(
    implementation = _library_sources_impl,
    attrs = {"deps": attr.label_list(aspects = [_sources_aspect])},
)
