# Turns the device headers and tables into one C file of strings, so that NVRTC finds them wherever the library lies.
function(mathfuse_embed out)
  set(root ${CMAKE_CURRENT_SOURCE_DIR})
  file(GLOB headers CONFIGURE_DEPENDS ${root}/include/mathfuse/device/*.cuh ${root}/include/mathfuse/def/*.def ${root}/src/device/*.cuh)
  set(result ${CMAKE_CURRENT_BINARY_DIR}/mathfuse_embedded.c)
  add_custom_command(OUTPUT ${result}
    COMMAND ${CMAKE_COMMAND} -DROOT=${root} -DRESULT=${result} "-DHEADERS=${headers}" -P ${root}/cmake/embed.cmake
    DEPENDS ${headers} ${root}/cmake/embed.cmake VERBATIM)
  set(${out} ${result} PARENT_SCOPE)
endfunction()
