#!/bin/bash
# tools/bazel7_chroot says with 77 that it cannot make a Debian here, and with 1 that making one
# failed; and it installs the packages that it is asked for. What needs root are stand-ins.
set -u
bin=$TEST_TMPDIR/bin
dir=$TEST_TMPDIR/forky
mirror=$TEST_TMPDIR/mirror
mkdir "$bin" || exit 1
for program in bash cat cp dirname env git grep ip ls mkdir mktemp python3 realpath rm sed tail true; do
  path=$(type -P $program) || { printf 'no %s\n' $program && exit 1; }
  ln -s "$path" "$bin/$program"
done
# stand_in PROGRAM LINE...
stand_in() {
  printf '%s\n' '#!/bin/bash' "${@:2}" >"$bin/$1" && chmod +x "$bin/$1"
}
stand_in id 'echo 1000'
stand_in unshare 'while [[ $1 == -* ]]; do shift; done' 'exec "$@"'
stand_in chroot 'exit 1'
stand_in mount 'exit 0'

status=0
# expect STATUS TEXT ARGUMENT...: what the script exits with and prints somewhere.
expect() {
  local output code
  output=$(PATH=$bin tools/bazel7_chroot "${@:3}" 2>&1)
  code=$?
  [ $code -ne "$1" ] || [[ $output != *"$2"* ]] || return
  printf 'expected %d and "%s", got %d and:\n%s\n\n' "$1" "$2" $code "$output"
  status=1
}

expect 2 'usage:' --package
expect 2 'usage:' --package clang-22
expect 2 'usage:' --packages clang-22 "$dir"
expect 77 'needs root' "$dir"
stand_in id 'echo 0'
expect 77 'no debootstrap; apt-get install debootstrap' "$dir"
stand_in debootstrap 'echo "E: of the stand-in"; exit 1'
expect 77 'no Debian forky from http://127.0.0.1:9' --mirror http://127.0.0.1:9 "$dir" true
expect 77 'no Debian forky from file:' --mirror "file://$mirror" "$dir"
mkdir -p "$mirror/dists/forky" && echo signed >"$mirror/dists/forky/InRelease"
expect 1 'E: of the stand-in' --mirror "file://$mirror" "$dir"
stand_in debootstrap 'mkdir -p "$4"/usr/bin "$4"/etc/apt/apt.conf.d "$4"/proc "$4"/dev' \
  'cp /bin/true "$4/usr/bin/apt-get"'
packages=(--package clang-22 --mirror "file://$mirror" --package g++-16)
expect 1 'installing clang-22 g++-16 ' "${packages[@]}" "$dir"
expect 1 "apt-get failed in $dir" "${packages[@]}" "$dir"
expect 77 'no Debian forky from http://127.0.0.1:9:' --mirror http://127.0.0.1:9 "$dir"
echo 'deb http://127.0.0.1:9/made forky main' >"$dir/etc/apt/sources.list"
expect 77 'no Debian forky from http://127.0.0.1:9/made:' --mirror "file://$mirror" "$dir"
stand_in unshare 'echo "unshare: not permitted" >&2; exit 1'
expect 77 'unshare: not permitted' "$dir"
exit $status
