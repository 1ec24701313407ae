// What the all-reduce benchmark can be told: the options of nccl-tests, and some more.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradweave/element.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::bench {

struct bench_options {
  int ranks = 2;
  std::string begin = "4K";
  std::string end = "64M";
  std::size_t factor = 4;
  std::size_t iterations = 20;
  std::size_t warm_ups = 5;
  std::size_t repeats = 11;
  bool check = true;
  std::string operation = "sum";
  std::string type = "float";
  std::string algorithm = "automatic";
  bool share_memory = true;
  bool limit = false;
  bool limit_pulls = false;
  std::vector<std::string> peers;
  std::string json;
};

struct named_kind {
  const char* name;
  element_kind kind;
};
inline constexpr std::array kinds = {
    named_kind{"float", element_kind::float32}, named_kind{"double", element_kind::float64},
    named_kind{"half", element_kind::float16},  named_kind{"bfloat16", element_kind::bfloat16},
    named_kind{"int32", element_kind::int32},   named_kind{"int64", element_kind::int64}};

struct named_operation {
  const char* name;
  reduction_operation operation;
};
inline constexpr std::array operations = {named_operation{"sum", reduction_operation::sum},
                                          named_operation{"min", reduction_operation::min},
                                          named_operation{"max", reduction_operation::max}};

template <class Named, std::size_t Count>
const Named& find(const std::array<Named, Count>& all, const std::string& name, const char* option) {
  std::string known;
  for (const Named& each : all) {
    if (each.name == name) {
      return each;
    }
    known += std::string(known.empty() ? "" : ", ") + each.name;
  }
  throw std::invalid_argument("'" + name + "' is not allowed for " + option + "; give one of " + known);
}

}  // namespace gradweave::bench
