# What `cmake --install` and `cpack` give: the command, the libraries, their headers, find_package(dodona CONFIG), pkg-config files, the
# manual page, shell completion and the documents.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dodona)

# Of the library's private dependencies three are needed to link the archive; headers alone are nobody else's business.
set_property(TARGET dodona PROPERTY INTERFACE_LINK_LIBRARIES $<LINK_ONLY:ZLIB::ZLIB> $<LINK_ONLY:OpenSSL::Crypto> $<LINK_ONLY:OpenMP::OpenMP_CXX>)
target_compile_features(dodona INTERFACE cxx_std_20)
install(TARGETS dodona EXPORT dodonaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dodonaTargets NAMESPACE dodona:: DESTINATION ${package_dir})
# The shared library, where it is built, has the C interface alone and asks nothing of who links it.
if(TARGET dodona_shared)
  set_target_properties(dodona_shared PROPERTIES EXPORT_NAME shared)
  install(TARGETS dodona_shared EXPORT dodonaSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT dodonaSharedTargets NAMESPACE dodona:: DESTINATION ${package_dir})
endif()
install(DIRECTORY include/dodona DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

configure_package_config_file(tools/cmake/dodonaConfig.cmake.in ${PROJECT_BINARY_DIR}/dodonaConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dodonaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dodonaConfig.cmake ${PROJECT_BINARY_DIR}/dodonaConfigVersion.cmake DESTINATION ${package_dir})

# The folder of the .pc file says where everything is: an installed tree may be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(pc_name dodona-static)
set(pc_what "C++ interface, static")
set(pc_libs "\${libdir}/${CMAKE_STATIC_LIBRARY_PREFIX}dodona${CMAKE_STATIC_LIBRARY_SUFFIX} -fopenmp")
set(pc_requires "zlib libcrypto")
configure_file(tools/cmake/dodona.pc.in ${PROJECT_BINARY_DIR}/dodona-static.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dodona-static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET dodona_shared)
  set(pc_name dodona)
  set(pc_what "C interface")
  set(pc_libs "-L\${libdir} -ldodona")
  set(pc_requires "")
  configure_file(tools/cmake/dodona.pc.in ${PROJECT_BINARY_DIR}/dodona.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/dodona.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET dodona_command)
  set_target_properties(dodona_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS dodona_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET dodona_mpi)
    install(TARGETS dodona_mpi LIBRARY DESTINATION lib COMPONENT mpi)  # where the command looks for it
  endif()
  # The command writes its own manual and completion; a cross build cannot ask it.
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(pages ${PROJECT_BINARY_DIR}/pages)
    file(MAKE_DIRECTORY ${pages})
    add_custom_command(
      OUTPUT ${pages}/dodona.1 ${pages}/dodona.bash ${pages}/_dodona
      COMMAND dodona_command docs man > ${pages}/dodona.1
      COMMAND dodona_command docs bash > ${pages}/dodona.bash
      COMMAND dodona_command docs zsh > ${pages}/_dodona
      DEPENDS dodona_command VERBATIM)
    add_custom_target(dodona_pages ALL DEPENDS ${pages}/dodona.1 ${pages}/dodona.bash ${pages}/_dodona)
    install(FILES ${pages}/dodona.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${pages}/dodona.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME dodona)
    install(FILES ${pages}/_dodona DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
endif()
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.py")
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "Dodona <dodona@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "CPU oracle for the kernels of DeepSeek inference")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++, libssl-dev, zlib1g-dev")
# What needs OpenMPI is a package of its own.
if(TARGET dodona_mpi)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_ALL Unspecified mpi)
  set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME dodona)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME dodona-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "dodona (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
  set(CPACK_COMPONENT_MPI_DESCRIPTION "Layers, models and suites over the ranks of an MPI job")
endif()
include(CPack)
