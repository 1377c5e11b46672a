# The Python package out of the build tree. It needs an interpreter with NumPy and pytest; without one the test says so and is skipped.
set(python_with_numpy "")
foreach(candidate python3 /usr/bin/python3)
  find_program(interpreter ${candidate} NO_CACHE)
  execute_process(COMMAND ${interpreter} -c "import numpy, pytest" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
  if(interpreter AND NOT missing AND NOT python_with_numpy)
    set(python_with_numpy ${interpreter})
  endif()
  unset(interpreter)
endforeach()
if(python_with_numpy)
  add_test(NAME python.package COMMAND ${python_with_numpy} -m pytest -q -p no:cacheprovider -p dodona.pytest_plugin ${PROJECT_SOURCE_DIR}/python/tests)
  # An installed dodona would bring the plug-in a second time.
  set(python_environment PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH=${PROJECT_SOURCE_DIR}/python PYTHONDONTWRITEBYTECODE=1 DODONA_LIBRARY=$<TARGET_FILE:dodona_shared>
                         DODONA_COMMAND=$<TARGET_FILE:dodona_command>)
  if(DODONA_SANITIZE MATCHES "address")
    # The interpreter is not sanitized: the runtime comes before it, with the library whose exceptions it watches, and what the interpreter
    # never frees is its own affair.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE asan OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so OUTPUT_VARIABLE cxx OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND python_environment "LD_PRELOAD=${asan}:${cxx}" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1)
  endif()
  set_tests_properties(python.package PROPERTIES ENVIRONMENT "${python_environment}" TIMEOUT 300)
else()
  add_skipped_test(python.package "python3 with numpy and pytest (Debian: python3-numpy python3-pytest)")
endif()
