#include "kernels/shared/pack_panel16-inl.h"
