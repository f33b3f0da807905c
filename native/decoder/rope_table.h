// Cosines and sines of rotary position embeddings, without libm: the same bits on every machine.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/layer_plan.h"

namespace tokenmill {

struct SinCos {
  double sin;
  double cos;
};

// For |x| < 2^30; absolute error below 1e-15.
SinCos sin_cos_fixed(double x);

// The frequencies of one RopePlan.
class RopeTable {
 public:
  // `freq_factors`: [rotary_dim/2], or null.
  RopeTable(const RopePlan& plan, const float* freq_factors);

  int64_t pairs() const { return static_cast<int64_t>(inverse_frequencies_.size()); }
  // cos and sin: [pairs()].
  void fill(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<double> inverse_frequencies_;
  double position_scale_;
};

}  // namespace tokenmill
