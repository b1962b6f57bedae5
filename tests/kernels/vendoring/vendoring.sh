# What the tests of vendored kernels share. Source it with the path of the graph in $graph, of the
# program `expected` in $expected, and the kind of part, cpu or cuda, in $part. $OPERATIONS names all
# that have a launcher; each has a loop for the CPU or a formula, and a program.

set -u -o pipefail
export LC_ALL=C
# Paths may have blanks.
work="$TEST_TMPDIR/a folder"
mkdir -p "$work/objects"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Each variant has names of its own, a C++ standard and a compiler. Nobody who vendors a kernel has
# to turn warnings off.
warnings=(-Wall -Wextra -Werror)
declare -A prefix=([plain]=brigade [renamed]=third_party/bk)
declare -A namespace=([plain]=brigade [renamed]=acme::bk)

# vendor VARIANT OPERATION: into $work/VARIANT/OPERATION.
vendor() {
  tools/vendor "//kernels/$2" "--$part" --out "$work/$1/$2" --graph "$graph" \
    --prefix "${prefix[$1]}" --namespace "${namespace[$1]}" >"$work/log" ||
    fail "$2: tools/vendor ended with $?: $(cat "$work/log")"
  # But for error texts.
  [ "$1" = plain ] ||
    ! grep -rin brigade "$work/$1/$2/${prefix[$1]}" | grep -vE ':[0-9]+:#error "[^"]*"$' ||
    fail "$2: names of the project are left"
}

# said VARIANT OPERATION KEY: what PROVENANCE says.
said() { sed -n "s/^$3: //p" "$work/$1/$2/PROVENANCE"; }

# object VARIANT COMMAND... SOURCE: prints the object that the command makes of the source, which
# has to be the last argument. Sources that several kernels share are compiled once a command.
object() {
  local variant=$1 source=${!#} name
  shift
  name=$(cat "$source" <(printf '%s\n' "$variant" "${@:1:$#-1}" | grep -v "^-I") | sha256sum)
  name=$work/objects/${name%% *}.o
  [ -f "$name" ] || "$@" -c -o "$name" 1>&2 || fail "$source does not compile: ${*:1:3}"
  printf '%s\n' "$name"
}

# under_names VARIANT FILE: copies it below $work/programs/VARIANT, under the variant's names, and
# sets $copied.
under_names() {
  copied=$work/programs/$1/${prefix[$1]}/$2
  mkdir -p "$(dirname "$copied")"
  sed -e "s|\"brigade/|\"${prefix[$1]}/|" -e "s/brigade::/${namespace[$1]}::/g" "$2" >"$copied"
}

# program VARIANT OPERATION COMMAND...: prints the object of the test's program, under the
# variant's names.
program() {
  local variant=$1 operation=$2 file copied
  shift 2
  for file in program.h "$operation.cc"; do
    under_names "$variant" "tests/kernels/vendoring/programs/$file"
  done
  object "$variant" "$@" "${warnings[@]}" -I"$work/programs/$variant" "$copied"
}

# taken_by OPERATION: the operations whose folders its caller needs, itself among them.
taken_by() {
  sed -nE "s,^#include \"brigade/kernels/([a-z0-9_]+)/\1_$part\.h\".*,\1,p" \
    "kernels/$1/example_$part.cc"
}

# caller VARIANT OPERATION COMMAND...: prints the object of the caller that the operation's folder
# shows, under the variant's names.
caller() {
  local variant=$1 operation=$2 taken includes=() copied
  shift 2
  for taken in $(taken_by "$operation"); do includes+=(-I"$work/$variant/$taken"); done
  under_names "$variant" "kernels/$operation/example_$part.cc"
  object "$variant" "$@" "${warnings[@]}" "${includes[@]}" "$copied"
}

# entry OPERATION: what its program's function is called.
entry() { sed -n 's/^void \(Run[A-Za-z0-9]*\)() {$/\1/p' "tests/kernels/vendoring/programs/$1.cc"; }

# main VARIANT... OPERATION: writes a main() that calls the program of each variant.
main() {
  local operation=${!#} variant calls=
  while [ $# -gt 1 ]; do
    variant=${namespace[$1]}
    printf 'namespace %s::vendored { void %s(); }\n' "$variant" "$(entry "$operation")"
    calls+="$variant::vendored::$(entry "$operation")(); "
    shift
  done >"$work/main.cc"
  printf 'int main() { %s}\n' "$calls" >>"$work/main.cc"
}

# shows OPERATION PROGRAM: the caller prints what its source says.
shows() {
  local source=kernels/$1/example_$part.cc
  [ "$("$2")" = "$(sed -n 's,^// Prints: ,,p' "$source")" ] || fail "$source, vendored, prints: $("$2")"
}

# compare OPERATION TIMES PROGRAM: the program prints, that many times, what the build's own gives.
compare() {
  local i
  for ((i = 0; i < $2; ++i)); do "$expected" | grep "^$1 "; done >"$work/wanted"
  [ -s "$work/wanted" ] || fail "$1: $expected prints nothing of it"
  "$3" >"$work/printed" || fail "$1: the program ended with $?: $(cat "$work/printed")"
  diff "$work/wanted" "$work/printed" || fail "$1: other bits than those of the build"
}
