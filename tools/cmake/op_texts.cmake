# Writes OUTPUT, a C++ file that defines ops::about (ops/about.h): what each op computes and whose it is, which is the comment above the struct
# of its header. Called by the build: cmake -DSOURCE=FOLDER [-DMORE=FOLDER] -DOUTPUT=FILE -P op_texts.cmake
set(patterns ${SOURCE}/ops/*.h)
if(MORE)
  list(APPEND patterns ${MORE}/ops/*.h)
endif()
file(GLOB_RECURSE headers ${patterns})
list(SORT headers)
set(entries "")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  string(FIND "${text}" "OpInfo info{\"" at)
  while(NOT at EQUAL -1)
    string(SUBSTRING "${text}" 0 ${at} above)
    string(FIND "${above}" "\nstruct " begin REVERSE)
    string(SUBSTRING "${above}" 0 ${begin} above)
    # The lines of the comment, which stands behind the last line that is empty.
    string(FIND "${above}" "\n\n" blank REVERSE)
    math(EXPR blank "${blank} + 1")
    string(SUBSTRING "${above}" ${blank} -1 comment)
    string(REGEX REPLACE "\n *///?" " " comment "${comment}")
    string(REGEX REPLACE " +" " " comment "${comment}")
    string(STRIP "${comment}" comment)
    math(EXPR at "${at} + 13")
    string(SUBSTRING "${text}" ${at} -1 text)
    string(FIND "${text}" "\"" quote)
    string(SUBSTRING "${text}" 0 ${quote} op)
    string(APPEND entries "    {\"${op}\", R\"about(${comment})about\"},\n")
    string(FIND "${text}" "OpInfo info{\"" at)
  endwhile()
endforeach()
file(WRITE "${OUTPUT}" "// Made by tools/cmake/op_texts.cmake of the comments in the headers of ops.
#include \"ops/about.h\"

namespace dodona::ops {

std::string_view about(std::string_view op) {
  struct Text {
    std::string_view op, text;
  };
  static constexpr Text texts[] = {
${entries}  };
  for (const Text& entry : texts)
    if (entry.op == op) return entry.text;
  return {};
}

}  // namespace dodona::ops
")
