# Tests of a program of GoogleTest's, a process for each suite; of what is swept over the inventory a process for each op, whatever the suite
# (`ops/rmsnorm`). A process for each test would start several thousand times what takes longer to start than to run, and what the tests of a
# suite have in common would be computed by each of them.
#
# Included: discover_suites(TARGET [PREFIX TEXT] [ONLY GTEST_FILTER] [TIMEOUT SECONDS] [ENVIRONMENT NAME=VALUE...]).
# As a script, after each build of the program: writes the file of tests that ctest reads.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(suites_script ${CMAKE_CURRENT_LIST_FILE})
  function(discover_suites target)
    cmake_parse_arguments(wanted "" "PREFIX;ONLY;TIMEOUT" "ENVIRONMENT" ${ARGN})
    if(NOT wanted_PREFIX)
      string(REGEX REPLACE "_tests$" "/" wanted_PREFIX ${target})
    endif()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM BYPRODUCTS ${file}
                       COMMAND ${CMAKE_COMMAND} -D program=$<TARGET_FILE:${target}> -D file=${file} -D folder=${CMAKE_CURRENT_BINARY_DIR}
                               -D prefix=${wanted_PREFIX} -D "only=${wanted_ONLY}" -D timeout=${wanted_TIMEOUT} -D "environment=${wanted_ENVIRONMENT}"
                               -P ${suites_script})
    # Before the first build there is none: a test that is not there is red.
    file(CONFIGURE OUTPUT ${target}_include.cmake @ONLY CONTENT
         "if(EXISTS \"${file}\")\n  include(\"${file}\")\nelse()\n  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  endfunction()
  return()
endif()

set(filter)
if(only)
  set(filter --gtest_filter=${only})
endif()
execute_process(COMMAND ${program} --gtest_list_tests ${filter} WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE listed RESULT_VARIABLE status TIMEOUT 60)
if(status)
  message(FATAL_ERROR "${program} --gtest_list_tests ends with ${status}")
endif()
# A line each; what follows # is the value of a parameter, in which anything may stand.
string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")
string(REPLACE "\n" ";" listed "${listed}")
set(names)
set(suite)
foreach(line IN LISTS listed)
  if(suite MATCHES "^Inventory/" AND line MATCHES "^  .*/([^/]*)$")
    list(APPEND names ${CMAKE_MATCH_1})
    set(filter_${CMAKE_MATCH_1} "Inventory/*/${CMAKE_MATCH_1}")
  elseif(line MATCHES "^  ")
    list(APPEND names ${suite})
    set(filter_${suite} "${suite}.*")
  elseif(line MATCHES "^([^ ]+)\\.$")
    set(suite ${CMAKE_MATCH_1})
  endif()
endforeach()
list(REMOVE_DUPLICATES names)
if(NOT names)
  message(FATAL_ERROR "${program} has no tests")
endif()
set(tests)
foreach(name IN LISTS names)
  string(APPEND tests "add_test([=[${prefix}${name}]=] [=[${program}]=] [=[--gtest_filter=${filter_${name}}]=])\n"
         "set_tests_properties([=[${prefix}${name}]=] PROPERTIES WORKING_DIRECTORY [=[${folder}]=] TIMEOUT ${timeout} ENVIRONMENT [=[${environment}]=])\n")
endforeach()
file(WRITE ${file} "${tests}")
