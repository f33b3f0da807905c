# cmake -DNM=<nm> -DSET=<name> -DOBJECTS=<a;b> -P set_symbols.cmake
#
# Everything that a kernel set's objects define for the linker lies in the set's own namespace. An inline function of a
# shared header compiled with the set's instruction flags would otherwise be merged with the copy of all other code, which
# then dies of an illegal instruction on a CPU without them. Nor do they run anything when the module is loaded.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -C --defined-only --extern-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE all_symbols COMMAND_ERROR_IS_FATAL ANY)
  if(all_symbols MATCHES "_GLOBAL__(sub_)?I_[A-Za-z]|__cxx_global_var_init")
    message(SEND_ERROR "${object}: has a static initialiser, which would run on every CPU")
  endif()
  # What a set borrows from another stands in its table, where docs/kernels.md finds it.
  execute_process(COMMAND ${NM} -C --undefined-only ${object} OUTPUT_VARIABLE used COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "tokenmill::[A-Za-z0-9_]+::[A-Za-z0-9_]+[(]" used "${used}")
  foreach(symbol ${used})
    if(NOT symbol MATCHES "^tokenmill::${SET}::" AND NOT object MATCHES "kernel_set[.]cpp")
      message(SEND_ERROR "${object}: uses ${symbol})")
    endif()
  endforeach()
  foreach(symbol ${symbols})
    # Sanitizers add data of their own.
    if(NOT symbol MATCHES "^[0-9a-f]+ [A-Za-z] (tokenmill::${SET}::|__odr_asan[.]|DW[.]ref[.])")
      message(SEND_ERROR "${object}: defined outside tokenmill::${SET}: ${symbol}")
    endif()
  endforeach()
endforeach()
