"""The CMakeLists.txt of a vendored folder."""

_HEAD = """\
# Written by tools/vendor, whose --check compares; PROVENANCE says from what. To use it:
#
#   add_subdirectory(this_folder)
#   target_link_libraries(mine PRIVATE {library})

cmake_minimum_required(VERSION 3.18)
{architectures}project({library} LANGUAGES {languages})
"""

# nvcc's own choice is too old, and 80 runs on newer ones too.
_ARCHITECTURES = """\
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80)
endif()
"""

_CUDA_OPTION = """
if(NOT DEFINED {option})
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  option({option} "The CUDA half of {library}" ON)
else()
  option({option} "The CUDA half of {library}" OFF)
endif()
if({option})
{architectures}  enable_language(CUDA)
endif()
"""

_PACKAGE = """\
if(NOT TARGET {target})
  find_package({package}{required})
endif()
"""

# As brigade_find of cmake/packages.cmake: not every system has CMake packages of these.
_FILES = """\
foreach(each {libraries})
  list(GET each 0 title)
  list(GET each 1 debian)
  list(GET each 2 header)
  list(GET each 3 name)
  find_path({macro}${{name}}_INCLUDE_DIR "${{header}}" PATH_SUFFIXES "${{name}}")
  find_library({macro}${{name}}_LIBRARY "${{name}}")
  if(NOT {macro}${{name}}_INCLUDE_DIR OR NOT {macro}${{name}}_LIBRARY)
    message(FATAL_ERROR "{library} needs ${{title}} (${{debian}}): its ${{header}} and its library")
  endif()
  target_include_directories({library} SYSTEM {scope} "${{{macro}${{name}}_INCLUDE_DIR}}")
  target_link_libraries({library} {scope} "${{{macro}${{name}}_LIBRARY}}")
endforeach()
"""

# As brigade_find's HEADER: no program links it.
_HEADER = """\
find_path({variable} "{header}")
if({variable})
{body}endif()
"""

_PROPERTIES = ["POSITION_INDEPENDENT_CODE ON", "CXX_EXTENSIONS OFF", "CUDA_EXTENSIONS OFF"]

_CUDA_STANDARD = """\
if("cuda_std_{standard}" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
  target_compile_features({library} PRIVATE cuda_std_{standard})
else()  # CMake 3.25 does not know yet all that nvcc takes.
  target_compile_options({library} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++{standard}>")
endif()
"""


def _call(command, first, lines):
    """command(first\\n  line\\n  line), or nothing without lines."""
    if not lines:
        return ""
    return f"{command}({first}\n" + "".join(f"  {line}\n" for line in lines) + ")\n"


def _indented(text):
    return "".join(f"  {line}\n" for line in text.splitlines())


def _options(selection):
    """The flags that bits and speed need, for each language."""
    host = [c for c in selection.copts if not c.startswith("-O")]
    optimized = [c for c in selection.copts if c.startswith("-O")]
    cxx = "$<COMPILE_LANGUAGE:CXX>"
    lines = [
        f'"$<{cxx}:{";".join(host)}>"',
        f'"$<$<AND:{cxx},$<NOT:$<CONFIG:Debug>>>:{";".join(optimized)}>"',
    ]
    if selection.cuda != "none":
        cuda = ";".join([*selection.cuda_copts, "-Xcompiler=" + ",".join(host)])
        lines.append(f'"$<$<COMPILE_LANGUAGE:CUDA>:{cuda}>"')
    return lines


def _bits(selection):
    """The flags of the formulas in headers, for those who compile them."""
    host = selection.bit_copts
    cuda = selection.cuda_bit_copts + ["-Xcompiler=" + c for c in host]
    return [
        f'"$<$<COMPILE_LANGUAGE:CXX>:{";".join(host)}>"',
        f'"$<$<COMPILE_LANGUAGE:CUDA>:{";".join(cuda)}>"',
    ]


def _find(external, targets):
    """What finds a library by its package."""
    required = "" if external.define else " REQUIRED"
    return _PACKAGE.format(target=targets[0], package=external.cmake_package, required=required)


def _link(library, scope, external, targets, macro):
    """What links a library that its package has found."""
    link = _call("target_link_libraries", f"{library} {scope}", targets)
    if not external.define:
        return link
    condition = " AND ".join(f"TARGET {target}" for target in targets)
    body = _indented(link + _define(library, scope, external, macro))
    return f"if({condition})\n{body}endif()\n"


def _define(library, scope, external, macro):
    """What tells the code that an optional library is there."""
    name = macro + external.define.removeprefix("BRIGADE_")
    return f"target_compile_definitions({library} {scope} {name})\n"


def _header(library, scope, external, macro):
    """What finds an optional library of which the headers are all that a build needs."""
    variable = f"{macro}{external.name}_INCLUDE_DIR"
    include = f'target_include_directories({library} SYSTEM {scope} "${{{variable}}}")\n'
    body = _indented(include + _define(library, scope, external, macro))
    return _HEADER.format(variable=variable, header=external.header, body=body)


def _cuda(library, scope, sources, standard):
    find = (
        "find_package(CUDAToolkit REQUIRED)\n"
        f"target_include_directories({library} SYSTEM {scope} ${{CUDAToolkit_INCLUDE_DIRS}})\n"
    )
    if any(source.endswith(".cu") for source in sources):
        find += _CUDA_STANDARD.format(library=library, standard=standard)
    return find + _call("target_sources", f"{library} PRIVATE", sources)


def text(selection, names, library, place, include_path, standard, refusal):
    """The file's text.

    Args:
      selection: what is vendored.
      names: what it is called, rewrite.Names.
      library: the CMake target's name.
      place: from a path in the tree to the one in the folder.
      include_path: from the folder to where includes start, "." or "../..".
      standard: the C++ standard that the code needs at least.
      refusal: what stops on flags that change bits, cmake/refuse_fast_math.cmake.
    """
    here = "${CMAKE_CURRENT_SOURCE_DIR}"
    root = here if include_path == "." else f"{here}/{include_path}"
    option = names.macro + "CUDA"
    if selection.cuda == "optional":
        sources = [place(s) for s in selection.sources if s not in selection.cuda_files]
        cuda_sources = [place(s) for s in selection.sources if s in selection.cuda_files]
    else:
        sources = [place(s) for s in selection.sources if not s.endswith(".cu")]
        cuda_sources = [place(s) for s in selection.sources if s.endswith(".cu")]
    kind, scope = ("STATIC", "PUBLIC") if selection.sources else ("INTERFACE", "INTERFACE")

    needs_nvcc = selection.cuda == "required" and cuda_sources
    out = _HEAD.format(
        library=library,
        languages="CXX CUDA" if needs_nvcc else "CXX",
        architectures=_ARCHITECTURES if needs_nvcc else "",
    )
    if selection.cuda == "optional":
        out += _CUDA_OPTION.format(
            option=option, library=library, architectures=_indented(_ARCHITECTURES)
        )
    out += "\n" + refusal
    packages = [pair for pair in selection.externals if pair[1]]
    out += "".join(["\n", *(_find(*pair) for pair in packages), "\n"]) if packages else "\n"
    out += f"add_library({library} {kind})\n"
    out += _call("target_sources", f"{library} PRIVATE", sources)
    out += f'target_include_directories({library} {scope} "{root}")\n'
    out += f"target_compile_features({library} {scope} cxx_std_{standard})\n"
    if kind == "STATIC":
        out += _call("set_target_properties", f"{library} PROPERTIES", _PROPERTIES)
        out += "# As the project compiles it: for its bits and its speed.\n"
        out += _call("target_compile_options", f"{library} PRIVATE", _options(selection))
    if kind == "INTERFACE" or "precision/rounding.h" in selection.texts:
        out += "# Who includes the headers compiles their formulas.\n"
        out += _call("target_compile_options", f"{library} INTERFACE", _bits(selection))
    for path, options in sorted(selection.own_copts.items()):
        out += (
            f'set_source_files_properties({place(path)} PROPERTIES COMPILE_OPTIONS "'
            + ";".join(options)
            + '")\n'
        )
    searched = [f'"{here}/{place(include)}"' for include in selection.includes]
    out += _call("target_include_directories", f"{library} SYSTEM {scope}", searched)
    for external, targets in packages:
        out += _link(library, scope, external, targets, names.macro)
    alone = [external for external, targets in selection.externals if not targets]
    for external in alone:
        if not external.link:
            out += _header(library, scope, external, names.macro)
    files = [
        f'"{each.title};{each.debian};{each.header};{each.link[0]}"' for each in alone if each.link
    ]
    if files:
        out += _FILES.format(
            libraries=" ".join(files), macro=names.macro, library=library, scope=scope
        )
    linked = [option.removeprefix("-l") for option in selection.linkopts]
    out += _call("target_link_libraries", f"{library} {scope}", linked)

    if selection.cuda == "optional":
        cuda = _cuda(library, scope, cuda_sources, standard)
        out += f"\nif({option})\n{_indented(cuda)}endif()\n"
    elif selection.cuda == "required":
        out += "\n" + _cuda(library, scope, cuda_sources, standard)
    if "BRIGADE_CUDA" in selection.macros:
        value = {"none": "0", "required": "1", "optional": f"$<BOOL:${{{option}}}>"}[selection.cuda]
        out += f"target_compile_definitions({library} {scope} {option}={value})\n"
    return out
