#include "decoder/placement.h"

#include <stdexcept>
#include <string>

namespace tokenmill {

void Placement::check(int threads) const {
  if (weight_copies.empty()) throw std::invalid_argument("placement: no copy of the weights");
  if (!thread_copies.empty() && thread_copies.size() != static_cast<size_t>(threads)) {
    throw std::invalid_argument("placement: thread_copies names " + std::to_string(thread_copies.size()) +
                                " copies for " + std::to_string(threads) + " threads");
  }
  for (const int copy : thread_copies) {
    if (copy < 0 || static_cast<size_t>(copy) >= weight_copies.size()) {
      throw std::invalid_argument("placement: copy " + std::to_string(copy) + " of " +
                                  std::to_string(weight_copies.size()));
    }
  }
}

}  // namespace tokenmill
