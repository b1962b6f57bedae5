#!/bin/bash
# tools/check_docs names each kind of problem by file and line, and is silent on good pages.
set -u
repo=$TEST_TMPDIR/repo
mkdir -p "$repo"/{tools,tests/docs,kernels/adam,docs/decisions} || exit 1
cp -L tools/check_docs tools/docs_commands.py "$repo/tools/" || exit 1
cd "$repo" && git init -q . || exit 1
printf '%s\n' //kernels/adam:adam //kernels/adam:adam.h //tests/docs:pages_test //tests/docs:BUILD.bazel >labels
touch kernels/adam/adam.h docs/decisions/0001-why.md
printf '%s\n' 'PAGES = ["README.md"]' '# nvcc; kernels/anything; not something-else' >tests/docs/BUILD.bazel

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

<!-- needs: a reader -->
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
# A link leads on from its page, a path between backticks also from the root, and nothing from above it.
mkdir -p kernels/tests && touch kernels/tests/there.h
cat >kernels/adam/README.md <<<'[up](../../docs/decisions/0001-why.md), [root](../..), `../adam/adam.h`, `kernels/adam/adam.h`'
expect 0 "" </dev/null
cat >kernels/adam/README.md <<<'[up](../docs/decisions/0001-why.md)'
expect 1 'kernels/adam/README.md:1: ../docs/decisions/0001-why.md leads nowhere' </dev/null
cat >kernels/adam/README.md <<<'[root](kernels/adam/adam.h)'
expect 1 'kernels/adam/README.md:1: kernels/adam/adam.h leads nowhere' </dev/null
cat >kernels/adam/README.md <<<'[above](../../../docs/decisions/0001-why.md)'
expect 1 'kernels/adam/README.md:1: ../../../docs/decisions/0001-why.md leads nowhere' </dev/null
cat >kernels/adam/README.md <<<'`../../../tests/docs/BUILD.bazel`'
expect 1 'kernels/adam/README.md:1: ../../../tests/docs/BUILD.bazel leads nowhere' </dev/null
# What a README's table names without a folder is in its own, or beside what the row has named.
cat >kernels/adam/README.md <<<'| `adam.h`, `X.h`, `.cc` | `kernels/tests/there.h`, `there.h` |'
expect 0 "" </dev/null
cat >kernels/adam/README.md <<<'`there.h` is in no table'
expect 0 "" </dev/null
cat >kernels/adam/README.md <<<'| `adam.h` | beside `there.h` |'
expect 1 'kernels/adam/README.md:1: there.h is not in the folder of this page: say in which' </dev/null
cat >kernels/adam/README.md <<<$'| `../tests/there.h` | |\n| `there.h` | |'
expect 1 'kernels/adam/README.md:2: there.h is not in the folder of this page: say in which' </dev/null
rm -r kernels/adam/README.md kernels/tests
# The index of the documents has all of them.
cat >docs/README.md <<<'[one](one.md)'
touch docs/one.md
expect 0 "" </dev/null
touch docs/two.md
expect 1 'docs/README.md: does not link two.md' </dev/null
rm docs/README.md docs/one.md docs/two.md
expect 1 'README.md:2: there is no target //kernels:sgd' <<<$'```sh\nbazel run //kernels:sgd\n```'
expect 1 'README.md:2: there is no target //kernels/adam:sgd' <<<$'```sh\nbazel-bin/kernels/adam/sgd\n```'
expect 1 'README.md:3: say before the block what nvcc needs, or what runs it' <<<$'```sh\n\nX=1 nvcc x.cu\n```'
expect 1 'README.md:2: there is no target //tests/docs:no_test' <<<$'<!-- run by: //tests/docs:no_test -->\n```sh\nx\n```'
expect 1 'README.md:3: //tests/docs:pages_test does not run something: no file there names it' \
  <<<$'<!-- run by: //tests/docs:pages_test -->\n```sh\nsomething --flag\n```'
expect 0 "" <<<$'<!-- run by: tests/docs/BUILD.bazel -->\n```sh\n../x/nvcc a && bazel run //kernels/anything -- b\n```'
expect 1 'README.md:3: tests/docs/BUILD.bazel does not run //other:anything: no file there names it' \
  <<<$'<!-- run by: tests/docs/BUILD.bazel -->\n```sh\nbazel run //other:anything\n```'
expect 0 "" <<<$'<!-- run by: //tests/docs:pages_test -->\n```sh\nbazel run //tests/docs:pages_test\n```'
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
# A command between backticks is one too, and what says why it is not run stands behind it.
chmod +x kernels/adam/adam.h && echo '# adam' >kernels/adam/adam.h
cat >.bazelrc <<<'build:tsan --copt=-fsanitize=thread'
expect 0 "" <<<'`kernels/adam/adam.h`, `adam`, `bazel run`, `bazel test --config=tsan //...`, `adam.h x`, `X=1 kernels/adam/adam.h x`'
expect 0 "" <<<'| `nvcc x` <!-- needs: a toolkit --> | `adam --fast` <!-- run by: kernels/adam/adam.h --> |'
expect 1 'README.md:1: .bazelrc has no --config=msan' <<<'`bazel test --config=msan //...`'
expect 1 'README.md:2: .bazelrc has no --config=msan' <<<$'```sh\nbazel test --config=msan //...\n```'
expect 1 'README.md:1: say before the block what nvcc needs, or what runs it' <<<'`nvcc x`, <!-- needs: a toolkit -->'
expect 1 'README.md:1: say before the block what adam needs, or what runs it' <<<'Where `X=1 adam --fast`'
expect 1 'README.md:1: there is no target //tests/docs:no_test' <<<'`nvcc x` <!-- run by: //tests/docs:no_test -->'
expect 1 'README.md:1: there is no target //kernels/adam:sgd' <<<'`bazel-bin/kernels/adam/sgd --fast`'
expect 1 'README.md:1: //tests/docs:pages_test does not run g++' <<<'`g++ x` <!-- run by: //tests/docs:pages_test -->'
expect 1 'README.md:1: what is between backticks stands in one line' <<<$'`bazel run\n//kernels/adam`'
expect 1 'README.md:2: a command in a block that is not ```sh' <<<$'```\nbazel run //kernels/adam\n```'
# So is one on a page whose flags alone are looked up.
printf '%s\n' 'PAGES = ["README.md"]' '_FLAG_PAGES = ["docs/flags.md"]' '# nvcc; anything' >tests/docs/BUILD.bazel
printf '`bazel run //kernels/adam`, `--fast`\n' >docs/flags.md
expect 1 'docs/flags.md:1: no test runs this, as tests/docs/BUILD.bazel does not name the page' </dev/null
printf '`--fast`\n' >docs/flags.md
expect 0 "" </dev/null
printf '`--fast`\n' >docs/others.md
expect 1 'docs/others.md:1: no test looks this flag up, as tests/docs/BUILD.bazel does not name the page' </dev/null
rm docs/flags.md docs/others.md
# What other languages say is something of the tree, or a test takes it.
expect 1 'README.md:1: say before the block from which file it is, or what takes it' <<<$'```python\nx = 1\n```'
printf 'f(\n  "b",  # why\n  2,\n)\ng()\n' >x.py
expect 0 "" <<<$'- In a list:\n  <!-- from x.py -->\n  ```python\n  f("b", 2)\n  ```\n  and `then`.'
expect 1 'README.md:2: x.py has no such lines' <<<$'<!-- from x.py -->\n```python\nf("a", 2)\n```'
expect 0 "" <<<$'<!-- from x.py, but for strings -->\n```python\nf("a", 2)\n```'
expect 1 'README.md:2: x.py has no such lines' <<<$'<!-- from x.py, but for strings -->\n```python\nf("a", 3)\n```'
expect 1 'README.md:2: x.py has no such lines' <<<$'<!-- from x.py -->\n```python\n# nothing\n```'
expect 1 'README.md:2: there is no file y.py' <<<$'<!-- from y.py -->\n```python\nx\n```'
expect 1 'README.md:2: x.py does not read this page: no file there names it' \
  <<<$'<!-- run by: x.py -->\n```python\nx\n```'
expect 0 "" </dev/null
printf '```sh\nbazel run //kernels/adam\n```\n' >docs/page.md
expect 1 'docs/page.md:2: no test runs this, as tests/docs/BUILD.bazel does not name the page' </dev/null

exit $status
