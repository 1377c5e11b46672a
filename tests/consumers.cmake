# The installed library as other projects use it. Sanitized builds are not for installing.
if(DODONA_SANITIZE)
  return()
endif()
set(consumers ${CMAKE_CURRENT_SOURCE_DIR}/consumers)
set(consumers_build ${CMAKE_CURRENT_BINARY_DIR}/consumers)
set(prefix ${consumers_build}/prefix)
add_test(NAME package.installs COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
add_test(NAME package.serves_find_package
         COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${consumers} ${consumers_build}/find_package --build-generator ${CMAKE_GENERATOR}
                 --build-options -DCMAKE_PREFIX_PATH=${prefix} -DWANTED_VERSION=${PROJECT_VERSION} -DCMAKE_BUILD_TYPE=Debug
                 -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                 --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure)
add_test(NAME package.serves_pkg_config COMMAND ${consumers}/pkg_config.sh ${prefix} ${consumers} ${consumers_build}/pkg_config
                                                cc ${CMAKE_CXX_COMPILER})
set_tests_properties(package.installs PROPERTIES FIXTURES_SETUP installed_dodona TIMEOUT 120)
set_tests_properties(package.serves_find_package package.serves_pkg_config PROPERTIES FIXTURES_REQUIRED installed_dodona TIMEOUT 300)
add_test(NAME package.makes_a_debian_package COMMAND ${consumers}/debian.sh ${PROJECT_BINARY_DIR} ${CMAKE_CPACK_COMMAND} ${consumers_build}/debian)
set_tests_properties(package.makes_a_debian_package PROPERTIES TIMEOUT 300)
