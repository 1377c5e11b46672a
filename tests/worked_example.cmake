# The worked example of docs/adding-an-op.md, built as the page tells it: its files are taken out of the page, its lines are put into copies
# of the inventory and of the list of alternatives, its recording is made, and the swept tests and its own test run on it.
set(page ${PROJECT_SOURCE_DIR}/docs/adding-an-op.md)
set(example ${CMAKE_CURRENT_BINARY_DIR}/worked_example)
set(families src/oracle/alternatives/families.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page} ${PROJECT_SOURCE_DIR}/ops/inventory.cpp ${PROJECT_SOURCE_DIR}/${families})

function(write_if_changed path text)
  if(EXISTS ${path})
    file(READ ${path} old)
    if(old STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE ${path} "${text}")
endfunction()

# Blocks that begin with a comment naming their file.
set(example_sources)
foreach(fence "```cpp\n// " "```python\n# ")
  file(READ ${page} rest)
  string(LENGTH "${fence}" fence_length)
  while(TRUE)
    string(FIND "${rest}" "${fence}" begin)
    if(begin LESS 0)
      break()
    endif()
    math(EXPR begin "${begin} + ${fence_length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "\n" name_end)
    string(SUBSTRING "${rest}" 0 ${name_end} name)
    string(FIND "${rest}" "\n```\n" end)
    math(EXPR body_begin "${name_end} + 1")
    math(EXPR body_length "${end} - ${name_end}")
    string(SUBSTRING "${rest}" ${body_begin} ${body_length} body)
    write_if_changed(${example}/${name} "${body}")
    list(APPEND example_sources ${example}/${name})
  endwhile()
endforeach()

# The op's line, put in front of the others in a list of ops.
function(write_with_line list macro)
  file(READ ${PROJECT_SOURCE_DIR}/${list} text)
  string(REPLACE "#define ${macro}(OP) " "#define ${macro}(OP) OP(${example_op}) " changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "the worked example's line does not fit into ${list}")
  endif()
  string(REGEX REPLACE "^src/" "" name ${list})
  write_if_changed(${example}/${name} "${changed}")
endfunction()
file(READ ${page} text)
string(REGEX MATCHALL "\n  OP\\([a-z0-9_]+\\) +\\\\\n" lines "${text}")
list(LENGTH lines count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "docs/adding-an-op.md shows ${count} lines of lists, expected one of the inventory and one of the alternatives")
endif()
string(REGEX MATCH "[a-z0-9_]+" example_op "${lines}")
write_with_line(ops/inventory.cpp DODONA_INVENTORY)
write_with_line(${families} DODONA_ALTERNATIVES)

find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(recording ${example}/tests/golden/${example_op})
add_custom_command(OUTPUT ${recording}/recorded COMMAND ${Python3_EXECUTABLE} record.py COMMAND ${CMAKE_COMMAND} -E touch recorded
                   DEPENDS ${recording}/record.py WORKING_DIRECTORY ${recording})

set(example_simd ${example_sources})
list(FILTER example_simd INCLUDE REGEX "\\.simd\\.cpp$")
list(FILTER example_sources INCLUDE REGEX "\\.cpp$")
list(FILTER example_sources EXCLUDE REGEX "\\.simd\\.cpp$")

set(example_texts ${CMAKE_CURRENT_BINARY_DIR}/worked_example_texts.cpp)
add_custom_command(OUTPUT ${example_texts} VERBATIM DEPENDS ${DODONA_OP_TEXTS} ${page}
                   COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DMORE=${example} -DOUTPUT=${example_texts}
                           -P ${PROJECT_SOURCE_DIR}/tools/cmake/op_texts.cmake)

# The swept tests are those of ops_tests and oracle_tests; the linker finds the example's lists before the library's.
add_executable(example_tests ${example_sources} ${example_texts} ${recording}/recorded ${example}/ops/inventory.cpp
               ${PROJECT_SOURCE_DIR}/src/oracle/alternatives/alternative.cpp
               $<FILTER:$<TARGET_OBJECTS:ops_tests>,INCLUDE,every_op_test>
               $<FILTER:$<TARGET_OBJECTS:oracle_tests>,INCLUDE,alarms_test|audit_test>)
target_include_directories(example_tests BEFORE PRIVATE ${example})
target_include_directories(example_tests PRIVATE ops)
target_link_libraries(example_tests PRIVATE dodona dodona_flags dodona_sanitizers GTest::gtest GTest::gmock GTest::gtest_main OpenMP::OpenMP_CXX)
foreach(tier ${DODONA_TIERS})
  add_library(example_tier_${tier} OBJECT ${example_simd})
  target_include_directories(example_tier_${tier} BEFORE PRIVATE ${example})
  target_compile_definitions(example_tier_${tier} PRIVATE DODONA_TIER=${tier} DODONA_TIER_${tier}=1)
  get_target_property(options dodona_tier_${tier} COMPILE_OPTIONS)
  target_compile_options(example_tier_${tier} PRIVATE ${options})
  target_link_libraries(example_tier_${tier} PRIVATE dodona_flags)
  target_sources(example_tests PRIVATE $<TARGET_OBJECTS:example_tier_${tier}>)
endforeach()
discover_suites(example_tests ONLY "*/${example_op}:SoftCap.*" TIMEOUT 600 ENVIRONMENT DODONA_GOLDEN_PATH=${example}/tests/golden)
