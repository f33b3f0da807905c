// A model's plan as the decoder holds it, and the checks that make it safe to execute.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "contract/layer_plan.h"
#include "weights/weight_store.h"

namespace tokenmill {

struct DecoderPlan {
  ModelPlan model;
  int64_t context_length = 0;
  std::vector<LayerPlan> layers;
  std::vector<std::string> tensor_names;  // by TensorIndex
};

// The expected shape of every tensor, by TensorIndex. Throws std::invalid_argument when the plan contradicts itself or
// asks for something that the decoder does not have; the message names it.
std::vector<TensorSpec> check_plan(const DecoderPlan& plan);

}  // namespace tokenmill
