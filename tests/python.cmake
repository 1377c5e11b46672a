# The Python package out of the build tree, in an environment of its own (tools/python-environment): no interpreter found on the machine
# decides whether these tests run.
# COST is in seconds: where no earlier run says what tests take, the longest begin first all the same, and none is left alone at the end.
set(python_environment_folder ${CMAKE_CURRENT_BINARY_DIR}/python_environment)
add_test(NAME python.environment COMMAND ${PROJECT_SOURCE_DIR}/tools/python-environment ${python_environment_folder})
set_tests_properties(python.environment PROPERTIES FIXTURES_SETUP python_environment TIMEOUT 600)
# An installed dodona would bring the plug-in a second time.
set(python_environment PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONDONTWRITEBYTECODE=1 DODONA_LIBRARY=$<TARGET_FILE:dodona_shared>
                       DODONA_COMMAND=$<TARGET_FILE:dodona_command> DODONA_STEPS=$<TARGET_FILE:tensor_core_steps>)
if(DODONA_SANITIZE MATCHES "address")
  # The interpreter is not sanitized: the runtime comes before it, with the library whose exceptions it watches, and what the interpreter
  # never frees is its own affair.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE asan OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so OUTPUT_VARIABLE cxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND python_environment "LD_PRELOAD=${asan}:${cxx}" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1)
endif()
# With ml_dtypes, and as the package is without it: there all tests but those of programs that never ask for it.
function(add_python_tests name path)
  add_test(NAME python.${name} COMMAND ${python_environment_folder}/bin/python -m pytest -q -p no:cacheprovider -p dodona.pytest_plugin
                                       ${PROJECT_SOURCE_DIR}/python/tests ${ARGN})
  set_tests_properties(python.${name} PROPERTIES ENVIRONMENT "${python_environment};PYTHONPATH=${path}" TIMEOUT 900 COST 150
                       FIXTURES_REQUIRED python_environment)
endfunction()
add_python_tests(package "${PROJECT_SOURCE_DIR}/python")
list(TRANSFORM "hollow_checkpoint;inputs_script;kernel_map;ptx" REPLACE "(.+)" "--ignore=${PROJECT_SOURCE_DIR}/python/tests/test_\\1.py" OUTPUT_VARIABLE never_asked_for)
add_python_tests(package_without_ml_dtypes "${PROJECT_SOURCE_DIR}/python/tests/without_ml_dtypes:${PROJECT_SOURCE_DIR}/python" ${never_asked_for})

# tools/compare, one short row with whatever peers there are: that it runs and writes its page, not what it measures.
add_test(NAME python.compare COMMAND ${python_environment_folder}/bin/python ${PROJECT_SOURCE_DIR}/bench/compare.py
                                     --filter "^rmsnorm T=1 " --rounds 1 --seconds 0)
set_tests_properties(python.compare PROPERTIES ENVIRONMENT "${python_environment};PYTHONPATH=${PROJECT_SOURCE_DIR}/python" TIMEOUT 900
                     FIXTURES_REQUIRED python_environment PASS_REGULAR_EXPRESSION "`rmsnorm T=1 H=7168` . ..Dodona..")

# Public bugs, wrong and mended: caught, accepted, their causes named.
add_test(NAME python.bugs COMMAND ${python_environment_folder}/bin/python ${PROJECT_SOURCE_DIR}/tests/bugs/run.py)
set_tests_properties(python.bugs PROPERTIES ENVIRONMENT "${python_environment};PYTHONPATH=${PROJECT_SOURCE_DIR}/python" TIMEOUT 1800 COST 400
                     FIXTURES_REQUIRED python_environment)
