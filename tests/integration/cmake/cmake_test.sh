#!/bin/bash
# cmake_test.sh COMPONENT... [shared] [cuda] [emulated=LIBRARY] [cuda_sources] [own_sources] [users]
#   [warnings]
#
# Builds the components (or all) with CMake and installs them; then users, who see the installed files
# alone, build and run a program for each component by find_package and by pkg-config. With `cuda` nvcc
# compiles a kernel as CMake tells it to. With `users` there is nothing beside their users; `shared` is
# that with shared libraries. With `emulated` the components are built and installed with CUDA, and users
# run on an emulated device, by its runtime, the LIBRARY, in place of CUDA's. With `cuda_sources` nothing
# is installed: of components but kernels, what has code for CUDA is compiled. With `own_sources` the
# components' own sources are compiled, and not what they need, and a build is configured by the line of
# docs/using_one_target.md; with `warnings` all headers are, as of a part of a project that has its
# warnings on. All of it happens below a folder with a blank in its name.
set -u -o pipefail
export LC_ALL=C
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH CXXFLAGS LDFLAGS

work="$TEST_TMPDIR/some user"
checkout=$work/checkout # another name than brigade: the headers are found all the same
prefix=$work/prefix
components=() shared= cuda= runtime= cuda_sources= own_sources= users= warnings=
for argument in "$@"; do
  case $argument in
    shared | cuda | cuda_sources | own_sources | users | warnings) declare "$argument=yes" ;;
    emulated=*) runtime=$(dirname "$PWD/${argument#*=}") ;;
    *) components+=("$argument") ;;
  esac
done

failures=0
fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}
# must COMMAND...: shows the output of a command that fails, and ends the test.
must() {
  if ! "$@" >"$work/log" 2>&1; then
    tail -n 60 "$work/log"
    printf 'FAILED: %s\n' "$*"
    exit 1
  fi
}

mkdir -p "$work"
for program in cmake ninja pkg-config; do
  command -v "$program" >/dev/null || {
    printf 'there is no %s; tools/setup installs it\n' "$program"
    exit 1
  }
done
# Links would be installed as links.
cp -rL "$TEST_SRCDIR/$TEST_WORKSPACE" "$checkout" || exit 1
here=$checkout/tests/integration/cmake

# What cmake/graph.cmake says of a component, in words.
graph() { tr '\n' ' ' <"$checkout/cmake/graph.cmake" | grep -oP "set\(BRIGADE_$1\b\K[^)]*"; }
[ "${components[*]}" != all ] || read -ra components < <(graph ALL_COMPONENTS)

# The calls of brigade_library for these components, a line each.
libraries() { # COMPONENT...
  (cd "$checkout/cmake/libraries" && awk -v RS= '/^brigade_library/ { $1 = $1; print }' "${@/%/.cmake}")
}

# In the order of graph.cmake: the components and what they need.
closure() {
  local component wanted=" ${components[*]} "
  for component in "${components[@]}"; do wanted+="$(graph "NEEDS_$component") "; done
  for component in $(graph ALL_COMPONENTS); do
    [[ $wanted != *" $component "* ]] || echo "$component"
  done
}

configure() { # FOLDER ARGUMENT...
  local folder=$1
  shift
  must cmake -G Ninja -S "$checkout" -B "$folder" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DBRIGADE_COMPONENTS="$(IFS=';' && echo "${components[*]}")" "$@"
}

# -O0: the test looks at what is built, not at how fast it is.
build_and_install() { # ARGUMENT...
  configure "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 "$@"
  must cmake --build "$work/build"
  must cmake --install "$work/build" --prefix "$work/first_prefix"
  # Users take what was installed to wherever they like, and the build is gone.
  rm -rf "$prefix" "$work/build"
  mv "$work/first_prefix" "$prefix"
}

installed_files_are_complete() {
  local header
  grep -rIl "$TEST_TMPDIR" "$prefix" && fail "installed files name a folder of the build"
  [ -f "$prefix/share/doc/brigade/LICENSE" ] || fail "no licence is installed"
  # All but those for CUDA, which stand behind #if.
  while read -r header; do
    case $header in
      *cuda* | kernels/launch_kernel.h) ;;
      *) [ -f "$prefix/include/brigade/$header" ] || fail "$header is included and not installed" ;;
    esac
  done < <(grep -rhoP '^#include "brigade/\K[^"]+' "$prefix/include" | sort -u)
}

# consumer COMPONENT ARGUMENT...: configures a user who asks for it; the output is in $work/log.
consumer() {
  local component=$1
  shift
  rm -rf "$work/consumer"
  cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCOMPONENT="$component" "$@" >"$work/log" 2>&1
}

# Of all components, also those that are not built here: the daily test sees a new one.
components_have_users() {
  local component
  for component in $(graph ALL_COMPONENTS); do
    [ -f "$here/consumer/$component.cc" ] || fail "no user of component '$component': consumer/$component.cc"
    grep -q "^set($component Brigade::" "$here/consumer/CMakeLists.txt" ||
      fail "consumer/CMakeLists.txt has no set($component ...)"
  done
}

users_find_components() { # ARGUMENT...
  local component
  for component in $(closure); do
    must consumer "$component" "$@"
    must cmake --build "$work/consumer"
    LD_LIBRARY_PATH=$runtime must "$work/consumer/consumer"
    printf '%s by find_package: %s\n' "$component" "$(<"$work/log")"
  done
}

# The lines that docs/using_one_target.md shows.
users_do_as_the_guide_says() {
  local user=$work/guide
  mkdir -p "$user"
  {
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(guide CXX)\n'
    awk '$0 == "```cmake" { inside = 1; next } /^```/ { inside = 0 } inside' \
      "$checkout/docs/using_one_target.md"
  } >"$user/CMakeLists.txt"
  grep -q 'find_package(Brigade' "$user/CMakeLists.txt" || fail "docs/using_one_target.md has no find_package"
  cp "$here/consumer/kernels.cc" "$user/main.cc"
  must cmake -G Ninja -S "$user" -B "$user/build" -DCMAKE_PREFIX_PATH="$prefix"
  must cmake --build "$user/build"
  must "$user/build/main"
}

# Its line that configures a build, in a folder that holds the checkout.
builders_configure_as_the_guide_says() {
  local line folder=$work/builder
  line=$(grep -m1 '^cmake -S brigade ' "$checkout/docs/using_one_target.md") ||
    fail "docs/using_one_target.md does not configure a build"
  mkdir -p "$folder"
  ln -s "$checkout" "$folder/brigade"
  must env -C "$folder" bash -c "$line"
}

# In lib, lib64 or one named after the machine, as CMake has it here.
pkg_config_path() { find "$prefix" -type d -name pkgconfig -print -quit; }

# others_of COMPONENT: the files that consumer/CMakeLists.txt names beside COMPONENT.cc.
others_of() {
  local name
  for name in $(sed -n "s/^set($1_sources \(.*\))$/\1/p" "$here/consumer/CMakeLists.txt"); do
    printf '%s\n' "$here/consumer/$name"
  done
}

# GNU ld takes minutes where many stand before what they need (cmake/install.cmake).
shared_libraries_stand_behind_what_they_need() {
  local component library needed seen
  for component in $(closure); do
    seen=" "
    for library in $(sed -n 's/^Libs: //p' "$(pkg_config_path)/brigade-$component.pc" | grep -oP ' -l\Kbrigade_\w+'); do
      for needed in $(readelf -d "$(pkg_config_path)/../lib$library.so" | grep -oP '\(NEEDED\).*\[lib\Kbrigade_\w+'); do
        [[ $seen == *" $needed "* ]] || fail "brigade-$component.pc: $library stands before $needed"
      done
      seen+="$library "
    done
    [[ $seen == *brigade_* ]] || fail "brigade-$component.pc names no library"
  done
}

users_find_pkg_config() { # ARGUMENT...
  local component said flags others
  for component in $(closure); do
    mapfile -t others < <(others_of "$component")
    said=$(PKG_CONFIG_PATH=$(pkg_config_path) pkg-config "$@" --cflags --libs "brigade-$component") || {
      fail "pkg-config does not find brigade-$component"
      continue
    }
    # It quotes blanks for the shell.
    eval "flags=($said)"
    must g++ -std=c++20 "$here/consumer/$component.cc" "${others[@]}" -o "$work/program" "${flags[@]}"
    LD_LIBRARY_PATH=$prefix/lib:$runtime must "$work/program"
    printf '%s by pkg-config: %s\n' "$component" "$(<"$work/log")"
  done
}

# refused TEXT COMPONENT ARGUMENT...: what cmake says to a user, in one line.
refused() {
  local text=$1 said
  shift
  if consumer "$@"; then
    fail "find_package does not refuse: $*"
    return
  fi
  said=$(tr -s ' \n' ' ' <"$work/log")
  [[ $said == *"$text"* ]] || {
    fail "refused without '$text': $*"
    cat "$work/log"
  }
}

missing_ones_are_refused() {
  refused "there is no component 'kernel'" kernel
  sed -i 's/Brigade 0.1 REQUIRED/Brigade 0.2 REQUIRED/' "$here/consumer/CMakeLists.txt"
  refused 'compatible with requested version "0.2"' kernels
  sed -i 's/Brigade 0.2 REQUIRED/Brigade 0.1 REQUIRED/' "$here/consumer/CMakeLists.txt"
  refused "component 'kernels' needs Highway" kernels -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON
  consumer device -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON || fail "device needs Highway"
  if ! [[ " $(closure | tr '\n' ' ')" == *" optim "* ]]; then
    refused "it was installed without component 'optim'" optim
  fi
  if cmake -G Ninja -S "$checkout" -B "$work/refused" -DBRIGADE_COMPONENTS="kernels;kernel" \
    >"$work/log" 2>&1 || ! grep -q "no component 'kernel'" "$work/log"; then
    fail "a build of a component that does not exist is not refused"
  fi
}

# Of libraries that are found by header and library: the one that is missing is called by its name.
missing_libraries_are_named() {
  local component library text
  while read -r component library text; do
    rm -rf "$work/refused"
    # Empty counts as looked for.
    if cmake -G Ninja -S "$checkout" -B "$work/refused" -DBRIGADE_COMPONENTS="$component" \
      -D"BRIGADE_${library}_LIBRARY=" >"$work/log" 2>&1 ||
      ! tr -s ' \n' ' ' <"$work/log" | grep -qF "component '$component' needs $text."; then
      fail "without $library: $(cat "$work/log")"
    fi
  done <<'END'
collectives sodium libsodium (libsodium-dev)
collectives_gloo gloo Gloo (libgloo-dev)
nn openblas OpenBLAS (libopenblas-dev)
END
}

# A project that has Abseil and Highway as targets of its own takes Brigade in, and installs none of it.
projects_of_others_bring_their_own() {
  local outer=$work/outer name
  mkdir -p "$outer"
  {
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(outer LANGUAGES CXX)\n'
    grep -hoE '(absl|hwy)::[a-z_]+' "$checkout"/cmake/libraries/*.cmake | sort -u | while read -r name; do
      printf 'add_library(own_%s INTERFACE)\nadd_library(%s ALIAS own_%s)\n' \
        "${name/::/_}" "$name" "${name/::/_}"
    done
    printf 'set(BRIGADE_COMPONENTS "kernels")\nadd_subdirectory("%s" brigade)\n' "$checkout"
    printf 'if(NOT TARGET Brigade::kernels_adam)\n  message(FATAL_ERROR "no adam")\nendif()\n'
  } >"$outer/CMakeLists.txt"
  must cmake -G Ninja -S "$outer" -B "$outer/build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
  built=$outer/build has kernels/adam/adam.cc -O3
  if grep -q 'libbrigade' "$outer/build/brigade/cmake_install.cmake"; then
    fail "a part of another project is installed with it"
  fi
}

# A part of another project has no system headers: that project's warnings look at all of them, with
# g++ and with clang. Each component is a file of its own. Device code in .h is nvcc's business.
headers_have_no_warnings() {
  local outer=$work/warnings component compiler without=CUDA_ONLY
  [ -z "$cuda" ] || without='^$'
  mkdir -p "$outer"
  {
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(outer LANGUAGES CXX)\n'
    printf 'set(CMAKE_OPTIMIZE_DEPENDENCIES ON)\nadd_subdirectory("%s" brigade)\n' "$checkout"
    # What is compiled with flags of its own, nn/tile_operands.h, needs the last (nn/BUILD.bazel).
    printf 'add_compile_options(-Wall -Wextra -Werror -Wno-psabi)\n'
    for component in $(closure); do
      libraries "$component" | grep -v "$without" >"$work/libraries"
      grep -oP ' HEADERS \K[^A-Z)]+' "$work/libraries" | tr ' ' '\n' |
        grep '\.h$' | grep -vx kernels/internal/warp.h |
        sed 's|.*|#include "brigade/&"|' >"$outer/$component.cc"
      [ -s "$outer/$component.cc" ] || fail "$component has no headers"
      printf 'add_library(user_%s STATIC %s.cc)\n' "$component" "$component"
      printf 'target_link_libraries(user_%s PRIVATE %s)\n' "$component" \
        "$(awk '{ print "Brigade::" $2 }' "$work/libraries" | tr '\n' ' ')"
    done
    printf 'add_custom_target(users DEPENDS%s)\n' "$(closure | sed 's/^/ user_/' | tr -d '\n')"
  } >"$outer/CMakeLists.txt"
  for compiler in g++ clang++; do
    must cmake -G Ninja -S "$outer" -B "$outer/$compiler" -DCMAKE_CXX_COMPILER="$compiler" \
      -DCMAKE_BUILD_TYPE=Debug -DBRIGADE_CUDA="${cuda:-no}" \
      -DBRIGADE_COMPONENTS="$(IFS=';' && echo "${components[*]}")"
    must cmake --build "$outer/$compiler" --target users
    printf '%s has no warnings in %s headers\n' "$compiler" "$(cat "$outer"/*.cc | wc -l)"
  done
}

# has FILE TEXT...: of all commands that compile FILE in the folder $built.
built=$work/release
has() {
  local file=$1 command text
  shift
  command=$(grep -F "$file" "$built/compile_commands.json" | grep '"command"')
  [ -n "$command" ] || fail "nothing compiles $file"
  for text in "$@"; do
    [[ $command == *" $text "* ]] || fail "$file is compiled without $text: $command"
  done
}

flags_are_those_of_bazel() {
  configure "$work/release" "$@"
  has kernels/adam/adam.cc -std=c++20 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math \
    -fPIC
  if grep -o '"command".* -W[a-z][^ ]*' "$work/release/compile_commands.json"; then
    fail "warnings are forced on users"
  fi
}

all_builds_but_debug_are_optimised() {
  local built=$work/rel_with_deb_info
  configure "$built" -DCMAKE_BUILD_TYPE=RelWithDebInfo
  has kernels/adam/adam.cc '-O2 -g -DNDEBUG -fPIC -O3'
}

# Who compiles formulas of headers gets the flags of their bits, and nobody else.
users_get_the_bits() {
  local built=$work/consumer
  must consumer kernels -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
  has kernels.cc -ffp-contract=off
  must consumer device -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
  ! grep -e -ffp-contract "$built/compile_commands.json" || fail "device's users get flags of formulas"
  PKG_CONFIG_PATH=$(pkg_config_path) pkg-config --cflags brigade-kernels | grep -q -e ' -ffp-contract=off' ||
    fail "pkg-config does not say -ffp-contract=off"
}

fast_math_is_refused() {
  local given
  for given in -DCMAKE_CXX_FLAGS=-ffast-math "-DCMAKE_CXX_FLAGS_RELEASE=-Ofast -g" \
    "-DCMAKE_CXX_FLAGS=-g -ffp-contract=fast" "-DCMAKE_CUDA_FLAGS=-lineinfo --use_fast_math" \
    -DCMAKE_CUDA_FLAGS=-ftz=true; do
    rm -rf "$work/refused"
    if cmake -G Ninja -S "$checkout" -B "$work/refused" "$given" >"$work/log" 2>&1 ||
      ! tr -s ' \n' ' ' <"$work/log" | grep -qE 'compile without (-ffast-math|-Ofast|-ffp-contract=fast|--use_fast_math|-ftz=true)'; then
      fail "$given is not refused: $(cat "$work/log")"
    fi
  done
}

# A tree that was installed with folders of the user's, and moved.
pkg_config_follows_a_moved_tree() {
  local from=$work/installed to=$work/moved
  configure "$work/lib64" -DCMAKE_INSTALL_PREFIX="$from" \
    -DCMAKE_INSTALL_LIBDIR="$from/lib64/deep down" -DCMAKE_INSTALL_INCLUDEDIR="our headers"
  mkdir -p "$to/our headers" "$to/lib64/deep down"
  cp -r "$work/lib64/pkgconfig" "$to/lib64/deep down"
  is_variable() { # NAME WANTED
    local said found
    said=$(PKG_CONFIG_PATH="$to/lib64/deep down/pkgconfig" pkg-config --variable="$1" brigade-device)
    eval "found=$said"
    [ "$(realpath "$found")" = "$2" ] || fail "pkg-config: the $1 of a moved tree is $said"
  }
  is_variable prefix "$to"
  is_variable libdir "$to/lib64/deep down"
  is_variable includedir "$to/our headers"
}

nvcc_compiles_a_kernel() {
  flags_are_those_of_bazel -DBRIGADE_CUDA=ON
  has kernels/adam/adam_cuda.cu --fmad=false -std=c++20 -O3 -DBRIGADE_CUDA=1
  must cmake --build "$work/release" --target brigade_kernels_adam_cuda
}

# Each of the targets by itself: of what it needs the headers do.
code_for_cuda_compiles() {
  local others targets sources file
  configure "$work/cuda" -DCMAKE_OPTIMIZE_DEPENDENCIES=ON -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_CUDA_FLAGS_DEBUG="-Xcicc -O0" \
    -DBRIGADE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90-virtual
  # cuda_soak_test builds the others.
  mapfile -t others < <(graph ALL_COMPONENTS | tr ' ' '\n' | grep -vxE 'device|kernels|')
  mapfile -t targets < <(libraries "${others[@]}" | grep -E ' CUDA_(SOURCES|DEPS) ' |
    grep -E ' (CUDA_)?SOURCES ' | awk '{ print "brigade_" $2 }')
  [ ${#targets[@]} -ge 30 ] || fail "only ${#targets[@]} targets have code for CUDA: ${targets[*]}"
  must cmake --build "$work/cuda" --target "${targets[@]}"
  built=$work/cuda
  mapfile -t sources < <(grep -rohE '[a-z0-9_/]+\.cu\b' "$checkout/cmake/libraries")
  for file in "${sources[@]}"; do has "$file" --fmad=false -std=c++20 -DBRIGADE_CUDA=1; done
  printf '%s targets, of %s files for nvcc\n' ${#targets[@]} ${#sources[@]}
}

# Against headers alone, of all that the components need: with that they would be the whole project.
own_sources_compile() {
  local targets
  configure "$work/own" -DCMAKE_OPTIMIZE_DEPENDENCIES=ON -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_FLAGS_DEBUG=-O0
  mapfile -t targets < <(libraries "${components[@]}" | grep ' SOURCES ' | awk '{ print "brigade_" $2 }')
  [ ${#targets[@]} -ge 5 ] || fail "only ${#targets[@]} targets have sources: ${targets[*]}"
  must cmake --build "$work/own" --target "${targets[@]}"
  printf '%s targets, %s objects\n' ${#targets[@]} "$(find "$work/own" -name '*.o' | wc -l)"
}

# The emulator's runtime, under the name of the toolkit's static one.
users_run_on_an_emulated_device() {
  local toolkit=$work/toolkit
  mkdir -p "$toolkit"
  printf 'INPUT("%s")\n' "$runtime/libcudart.so.13" >"$toolkit/libcudart_static.a"
  sed -i 's/device::Cpu()/device::Cuda(0)/' "$here/consumer/kernels.cc"
  # PTX, not compressed, is what the emulator reads.
  build_and_install -DBRIGADE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90-virtual \
    -DCMAKE_CUDA_FLAGS=--no-compress
  installed_files_are_complete
  [ -f "$prefix/include/brigade/kernels/adam/adam_cuda.h" ] || fail "no header of CUDA's is installed"
  users_find_components -DCUDA_cudart_static_LIBRARY="$toolkit/libcudart_static.a"
  users_find_pkg_config --define-variable=cuda_libdir="${toolkit// /\\ }"
}

mv "$checkout/examples/one_kernel.cc" "$here/consumer/kernels.cc"
for file in mlp.cc mlp.h; do
  sed 's|"brigade/examples/mlp.h"|"mlp.h"|' "$checkout/examples/$file" >"$here/consumer/$file"
done
if [ "$cuda_sources" ]; then
  code_for_cuda_compiles
  exit $((failures > 0))
fi
if [ "$own_sources" ]; then
  own_sources_compile
  builders_configure_as_the_guide_says
  exit $((failures > 0))
fi
if [ "$warnings" ]; then
  headers_have_no_warnings
  exit $((failures > 0))
fi
if [ "$users$shared" ]; then
  build_and_install -DBUILD_SHARED_LIBS="${shared:-no}"
  installed_files_are_complete
  users_find_components
  users_find_pkg_config
  [ -z "$shared" ] || shared_libraries_stand_behind_what_they_need
  exit $((failures > 0))
fi
if [ "$runtime" ]; then
  users_run_on_an_emulated_device
  exit $((failures > 0))
fi
components_have_users
build_and_install
installed_files_are_complete
users_find_components
users_do_as_the_guide_says
users_find_pkg_config
missing_ones_are_refused
missing_libraries_are_named
projects_of_others_bring_their_own
headers_have_no_warnings
flags_are_those_of_bazel
all_builds_but_debug_are_optimised
users_get_the_bits
fast_math_is_refused
pkg_config_follows_a_moved_tree
[ -z "$cuda" ] || nvcc_compiles_a_kernel

[ $failures -eq 0 ] || exit 1
