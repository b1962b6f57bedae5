#!/bin/bash
# tools/check_docs names each kind of problem by file and line, and is silent on good pages.
set -u
repo=$TEST_TMPDIR/repo
mkdir -p "$repo"/{tools,tests/docs,kernels/adam,docs/decisions} || exit 1
cp -L tools/check_docs tools/docs_commands.py "$repo/tools/" || exit 1
cd "$repo" && git init -q . || exit 1
printf '%s\n' //kernels/adam:adam //kernels/adam:adam.h //tests/docs:pages_test //tests/docs:BUILD.bazel >labels
touch kernels/adam/adam.h docs/decisions/0001-why.md
printf '%s\n' 'PAGES = ["README.md"]' '# nvcc; anything; not something-else' >tests/docs/BUILD.bazel

status=0
# expect STATUS TEXT: what tools/check_docs makes of README.md, from the standard input.
expect() {
  local output code
  cat >README.md
  git add -A . || exit 1
  output=$(tools/check_docs --labels labels 2>&1)
  code=$?
  if [ $code -ne "$1" ] || { [ -z "$2" ] && [ -n "$output" ]; } || [[ $output != *"$2"* ]]; then
    printf 'expected %s and "%s", got %d and:\n%s\n\n' "$1" "$2" $code "$output"
    status=1
  fi
}

expect 0 "" <<'END'
`//kernels/adam` and `//kernels/adam:adam`, [their folder](kernels/adam), `kernels/adam/adam.h`, `adam.h`,
`docs/decisions/0001`, `kernels/adam/adam`, https://bazel.build/x, `@other//x:y`, `bazel test //tests/...`,
`threads/direct`, `X.h`, `.cc`.

```sh
bazel build //kernels/adam:all && bazel test //...
bazel run //kernels/adam -- --flag \
  --other
kernels/adam/adam.h    # with a comment's `"
```

<!-- needs: a GPU -->
```sh
nvcc anything
```

<!-- run by: //tests/docs:pages_test -->
```sh
anything at all
```

```cpp
int x;  //nothing
```
END
expect 1 'README.md:1: there is no target //kernels/sgd' <<<'`//kernels/sgd`'
expect 1 'README.md:1: there is no target //kernels/adam:sgd' <<<'A `bazel run //kernels/adam:sgd`'
expect 1 'README.md:1: there is no target //zero/...' <<<'`bazel test //zero/...`'
expect 1 'README.md:1: there is no target kernels/adam:sgd' <<<'`kernels/adam:sgd`'
expect 1 'README.md:1: kernels/sgd leads nowhere' <<<'[there](kernels/sgd)'
expect 1 'README.md:1: kernels/sgd.h leads nowhere' <<<'`kernels/sgd.h`'
expect 1 'README.md:2: there is no file sgd.h' <<<$'\n`sgd.h`'
expect 1 'README.md:2: there is no target //kernels:sgd' <<<$'```sh\nbazel run //kernels:sgd\n```'
expect 1 'README.md:2: there is no target //kernels/adam:sgd' <<<$'```sh\nbazel-bin/kernels/adam/sgd\n```'
expect 1 'README.md:3: say before the block what nvcc needs, or what runs it' <<<$'```sh\n\nX=1 nvcc x.cu\n```'
expect 1 'README.md:2: there is no target //tests/docs:no_test' <<<$'<!-- run by: //tests/docs:no_test -->\n```sh\nx\n```'
expect 1 'README.md:3: //tests/docs:pages_test does not run something: no file there names it' \
  <<<$'<!-- run by: //tests/docs:pages_test -->\n```sh\nsomething --flag\n```'
expect 0 "" <<<$'<!-- run by: tests/docs/BUILD.bazel -->\n```sh\n../x/nvcc a && bazel run //kernels/anything -- b\n```'
expect 1 'README.md:2: tests/other leads nowhere' <<<$'<!-- run by: tests/other -->\n```sh\nx\n```'
# What a machine needs is no excuse for a name that is wrong.
expect 1 'there is no target //kernels/adam:sgd' <<<$'<!-- needs: a GPU -->\n```sh\nbazel run //kernels/adam:sgd\n```'
expect 1 'kernels/sgd.sh leads nowhere' <<<$'<!-- needs: a GPU -->\n```sh\nkernels/sgd.sh --flag\n```'
# A mark is that of the next line alone.
expect 1 'say before the block' <<<$'<!-- needs: a GPU -->\n\n```sh\nnvcc x\n```'
# A block that is called a file is that file, whole.
printf 'int x;\n' >x.cc
expect 0 "" <<<$'<!-- the file x.cc -->\n```cpp\nint x;\n```'
expect 1 'README.md:2: this is not x.cc as it is now' <<<$'<!-- the file x.cc -->\n```cpp\nint y;\n```'
expect 1 'README.md:2: this is not x.cc as it is now' <<<$'<!-- the file x.cc -->\n```cpp\n```'
expect 1 'README.md:2: there is no file y.cc' <<<$'<!-- the file y.cc -->\n```cpp\nint y;\n```'
expect 0 "" </dev/null
printf '```sh\nbazel run //kernels/adam\n```\n' >docs/page.md
expect 1 'docs/page.md:2: no test runs this, as tests/docs/BUILD.bazel does not name the page' </dev/null

exit $status
