#include "weights/page_sizes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tokenmill {
namespace {

constexpr uint64_t kSmallHugePage = uint64_t{2} << 20;

// The number after `key` in /proc/meminfo, without its unit; 0 where there is none.
uint64_t meminfo_number(const char* key) {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  char line[256];
  uint64_t number = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) {
      number = std::strtoull(line + std::strlen(key), nullptr, 10);
      break;
    }
  }
  std::fclose(file);
  return number;
}

uint64_t number_in(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char line[64];
  const uint64_t number = std::fgets(line, sizeof(line), file) != nullptr ? std::strtoull(line, nullptr, 10) : 0;
  std::fclose(file);
  return number;
}

// Sizes are powers of two; anything else is no size.
uint64_t checked(uint64_t size, uint64_t base) { return size >= base && (size & (size - 1)) == 0 ? size : 0; }

}  // namespace

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

bool is_worth_rounding(uint64_t bytes, uint64_t page) { return page <= std::max(kSmallHugePage, bytes / 8); }

PageSizes read_page_sizes() {
  PageSizes sizes;
  sizes.base = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  sizes.pool = checked(meminfo_number("Hugepagesize:") << 10, sizes.base);
  sizes.transparent = checked(number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"), sizes.base);
  return sizes;
}

RegionShape shape_region(uint64_t bytes, const PageSizes& sizes) {
  const uint64_t huge = sizes.transparent;
  if (huge != 0 && is_worth_rounding(bytes, huge)) {
    const uint64_t rounded = round_up(bytes, huge);
    return {rounded, huge, rounded};
  }
  // A tail in a page of 512 MiB could waste nearly all of it: it stays in small pages.
  const uint64_t advised = huge == 0 ? 0 : bytes / huge * huge;
  return {round_up(bytes, sizes.base), advised == 0 ? sizes.base : huge, advised};
}

std::string pool_refusal(uint64_t bytes, uint64_t page, const std::string& said) {
  if (meminfo_number("HugePages_Total:") == 0) return "no huge pages are reserved (vm.nr_hugepages is 0)";
  return "the pool of reserved huge pages has " + std::to_string(meminfo_number("HugePages_Free:")) + " of " +
         std::to_string((bytes + page - 1) / page) + " free (vm.nr_hugepages; " + said + ")";
}

}  // namespace tokenmill
