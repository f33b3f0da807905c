// The page sizes of this kernel, and how a region is laid out for them. Nothing is 4096 or 2 MiB by assumption: Arm
// kernels have base pages of 4, 16 or 64 KiB and huge pages of 2, 32 or 512 MiB.
#pragma once
#include <cstdint>
#include <string>

namespace tokenmill {

struct PageSizes {
  uint64_t base = 0;
  uint64_t transparent = 0;  // of a transparent huge page; 0: the kernel has none
  uint64_t pool = 0;         // of the pages that vm.nr_hugepages reserves; 0: the kernel has none
};

// Reads sysconf, /sys/kernel/mm/transparent_hugepage and /proc/meminfo.
PageSizes read_page_sizes();

// How a region of at least `bytes` is mapped.
struct RegionShape {
  uint64_t bytes = 0;
  uint64_t alignment = 0;
  uint64_t advised = 0;  // from the start: what transparent huge pages are asked for
};
RegionShape shape_region(uint64_t bytes, const PageSizes& sizes);

// Whether rounding up to a page of this size wastes little: under an eighth of the bytes, or at most 2 MiB.
bool is_worth_rounding(uint64_t bytes, uint64_t page);

uint64_t round_up(uint64_t value, uint64_t to);

// Why a pool of pages that the administrator reserved has no room for `bytes`; for a log line.
std::string pool_refusal(uint64_t bytes, uint64_t page, const std::string& said);

}  // namespace tokenmill
