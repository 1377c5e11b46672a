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
find_program(PKG_CONFIG pkg-config)
find_program(DPKG_DEB dpkg-deb)
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
set(package_tests package.serves_find_package)
if(PKG_CONFIG)
  add_test(NAME package.serves_pkg_config COMMAND ${consumers}/pkg_config.sh ${prefix} ${consumers} ${consumers_build}/pkg_config
                                                  cc ${CMAKE_CXX_COMPILER})
  list(APPEND package_tests package.serves_pkg_config)
else()
  add_skipped_test(package.serves_pkg_config "pkg-config (Debian: pkg-config)")
endif()
set_tests_properties(package.installs PROPERTIES FIXTURES_SETUP installed_dodona TIMEOUT 120)
set_tests_properties(${package_tests} PROPERTIES FIXTURES_REQUIRED installed_dodona TIMEOUT 300)
if(DPKG_DEB AND DPKG_SHLIBDEPS)
  add_test(NAME package.makes_a_debian_package COMMAND ${consumers}/debian.sh ${PROJECT_BINARY_DIR} ${CMAKE_CPACK_COMMAND} ${consumers_build}/debian)
  set_tests_properties(package.makes_a_debian_package PROPERTIES TIMEOUT 300)
else()
  add_skipped_test(package.makes_a_debian_package "dpkg-deb and dpkg-shlibdeps (Debian: dpkg-dev)")
endif()
