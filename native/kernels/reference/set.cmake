# Scalar code without instruction flags: the meaning of every function, and the set that runs anywhere when forced.
tokenmill_kernel_set(reference PROCESSORS ".*" FLAGS "")
