# Run with cmake -P: writes RESULT from HEADERS. Public headers keep their path below include/, skeletons that below src/.
set(names "")
set(texts "")
set(count 0)
foreach(header ${HEADERS})
  file(RELATIVE_PATH name ${ROOT}/include ${header})
  if(name MATCHES "^\\.\\./src/")
    string(REGEX REPLACE "^\\.\\./src/" "" name "${name}")
  endif()
  file(READ ${header} hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n    " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND texts "static const unsigned char text_${count}[] = {\n    ${hex}0};\n")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND pointers "    (const char *)text_${count},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${RESULT} "/* Generated from the device headers by cmake/embed.cmake. */
#include \"fusion.h\"
${texts}
const char *const mfi_embedded_names[] = {\n${names}    0};
const char *const mfi_embedded_texts[] = {\n${pointers}    0};
const int mfi_embedded_count = ${count};
")
