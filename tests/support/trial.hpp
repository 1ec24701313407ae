/// @file
/// Seeded random models, for property tests: a manifest of tensors of mixed kinds, sizes and residences, gradients that
/// are a pure function of (seed, rank, step, slot, element), and their average in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gradweave/gradweave.hpp>

namespace gradweave::tests {

/// A hook that changes every value and changes it back: averages are those without it.
inline auto negating_hook() {
  constexpr auto negate = [](compression::bucket_view bucket) { bucket.transform([](auto value) { return -value; }); };
  return compression::hook("negate", negate, negate);
}

using any_compression = one_of<compression::none, compression::fp16, compression::bf16, compression::per_hop_rounding,
                               decltype(negating_hook())>;
using any_overlap = one_of<overlap::blocking, overlap::progress_thread>;
using any_bucketing = one_of<bucketing::per_tensor, bucketing::fixed_bytes, bucketing::ready_order,
                             bucketing::merge_optimal, bucketing::needed_first>;

/// Cuts what is larger than 16 KiB, and lets all that waits overtake.
inline bucketing::needed_first in_slices() { return {{.bucket_bytes_max = std::size_t{16} << 10}, {.alpha_s = 1}}; }

enum class compression_name { none, fp16, bf16, per_hop };

/// One policy of each sort.
struct policy_choice {
  std::string name;
  compression_name compresses;
  any_compression compression;
  any_overlap overlap;
  any_bucketing bucketing;
};

/// Every pair of policies occurs; with GRADWEAVE_TEST_FULL set, every combination.
inline std::vector<policy_choice> policy_choices() {
  // Small caps, so that small models have several buckets.
  const bucketing::bucket_caps caps{.bucket_bytes_max = 3000, .first_bucket_bytes_max = 500};
  const any_compression compressions[] = {compression::none{}, compression::fp16{}, compression::bf16{},
                                          compression::per_hop_rounding{}};
  const any_overlap overlaps[] = {overlap::blocking{}, overlap::progress_thread{}};
  const any_bucketing bucketings[] = {bucketing::per_tensor{}, bucketing::fixed_bytes{caps},
                                      bucketing::ready_order{caps}};
  const char* compression_names[] = {"none", "fp16", "bf16", "per_hop_rounding"};
  const char* overlap_names[] = {"blocking", "progress_thread"};
  const char* bucketing_names[] = {"per_tensor", "fixed_bytes", "ready_order"};
  const bool full = std::getenv("GRADWEAVE_TEST_FULL") != nullptr;
  std::vector<policy_choice> choices;
  for (std::size_t c = 0; c < 4; ++c) {
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t o = 0; o < 2; ++o) {
        if (full || o == (c + b) % 2) {
          choices.push_back({std::string(compression_names[c]) + " " + overlap_names[o] + " " + bucketing_names[b],
                             static_cast<compression_name>(c), compressions[c], overlaps[o], bucketings[b]});
          if (c == 1 && b == 2) {  // plans anew twice, by times that differ from run to run
            choices.back().name += ", merge_optimal";
            choices.back().bucketing = bucketing::merge_optimal{caps, {.alpha_s = 1e-6, .beta_s_per_byte = 1e-9}};
          }
          if (c == 0 && b == 1) {  // what is sent and what comes of it stays the same
            choices.back().name += " in a hook";
            choices.back().compression = negating_hook();
          }
        }
      }
    }
  }
  return choices;
}

inline double load_element(element_kind kind, const std::byte* from) {
  return visit_element(kind, [&](auto type) {
    typename decltype(type)::type value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (requires { to_float32(value); }) {
      return static_cast<double>(to_float32(value));
    } else {
      return static_cast<double>(value);
    }
  });
}

/// Rounds to the kind.
inline void store_element(element_kind kind, std::byte* to, double value) {
  const auto store = [&](auto stored) { std::memcpy(to, &stored, sizeof stored); };
  switch (kind) {
    case element_kind::float32: store(static_cast<float>(value)); break;
    case element_kind::float64: store(value); break;
    case element_kind::float16: store(to_float16(static_cast<float>(value))); break;
    default: store(to_bfloat16(static_cast<float>(value))); break;
  }
}

/// What a tensor of that kind holds once `value` is stored in it.
inline double stored(element_kind kind, double value) {
  std::byte room[sizeof(double)];
  store_element(kind, room, value);
  return load_element(kind, room);
}

/// Half the distance between neighbouring values at 1.
inline double unit_roundoff(element_kind kind) {
  switch (kind) {
    case element_kind::float64: return std::ldexp(1, -53);
    case element_kind::float32: return std::ldexp(1, -24);
    case element_kind::float16: return std::ldexp(1, -11);
    default: return std::ldexp(1, -8);
  }
}

/// How far an average may be from the exact one, where `magnitude` is the average of absolute values.
inline double average_bound(const policy_choice& choice, element_kind kind, int size, double magnitude) {
  const double n = size;
  const double own = unit_roundoff(kind);
  const double float32 = unit_roundoff(element_kind::float32);
  const double smallest = std::ldexp(1, -24);  // of float16; where it is the step, an absolute error
  double relative = n * own;                   // each partial sum, and the division
  const bool half = kind == element_kind::float16 || kind == element_kind::bfloat16;
  if (choice.compresses != compression_name::per_hop && half) {
    relative = n * float32 + own;  // sums in float32, one rounding
  }
  if (kind != element_kind::float64) {
    if (choice.compresses == compression_name::fp16) {
      relative = n * float32 + 2 * unit_roundoff(element_kind::float16) + own;
    } else if (choice.compresses == compression_name::bf16) {
      relative = n * float32 + 2 * unit_roundoff(element_kind::bfloat16) + own;
    }
  }
  const bool sixteen =
      kind == element_kind::float16 || (choice.compresses == compression_name::fp16 && kind != element_kind::float64);
  return 1.01 * relative * magnitude + (sixteen ? (n + 1) * smallest : std::ldexp(1, -140));
}

/// A tensor whose kind is known at run time and that can be pointed elsewhere.
struct any_tensor {
  element_kind kind = element_kind::float32;
  std::size_t elements = 0;
  std::vector<std::byte> own;
  void* memory = nullptr;

  any_tensor(element_kind k, std::size_t n) : kind(k), elements(n), own(n * element_bytes(k)), memory(own.data()) {}

  void* gradweave_data() { return memory; }
  std::array<std::size_t, 1> gradweave_shape() const { return {elements}; }
  element_kind gradweave_kind() const { return kind; }
  void gradweave_rebind(void* to) { memory = to; }

  double get(std::size_t i) const { return load_element(kind, at(i)); }
  void set(std::size_t i, double value) { store_element(kind, at(i), value); }

  std::byte* at(std::size_t i) const { return static_cast<std::byte*>(memory) + i * element_bytes(kind); }

  std::vector<std::byte> bytes() const {
    const auto* begin = static_cast<const std::byte*>(memory);
    return {begin, begin + elements * element_bytes(kind)};
  }
};

/// What every rank registers, from a seed.
struct trial_slot {
  element_kind kind;
  std::size_t elements;
  residence where;
  std::uint32_t times = 1;  ///< how often it is used in a step
};

inline std::vector<trial_slot> random_slots(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const element_kind kinds[] = {element_kind::float32, element_kind::float32, element_kind::float64,
                                element_kind::float16, element_kind::bfloat16};
  const std::size_t sizes[] = {0, 1, 2, 15, 16, 17, 64, 100, 333, 1000, 3001};
  const residence wheres[] = {residence::own, residence::arena, residence::adopted};
  std::vector<trial_slot> slots;
  for (std::size_t i = 0; i < count; ++i) {
    slots.push_back({kinds[random() % 5], sizes[random() % 11], wheres[random() % 3]});
  }
  return slots;
}

/// A rank's tensors, registered in a manifest.
class trial_model {
 public:
  explicit trial_model(const std::vector<trial_slot>& slots) {
    for (const trial_slot& each : slots) {
      tensors_.push_back(std::make_unique<any_tensor>(each.kind, each.elements));
      wheres_.push_back(each.where);
      uses_.push_back({each.times});
    }
  }

  manifest make_manifest() {
    manifest made;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::string name = "slot" + std::to_string(i);
      any_tensor& tensor = *tensors_[i];
      switch (wheres_[i]) {
        case residence::own: made.add(name, tensor, uses_[i]); break;
        case residence::arena: made.add(name, in_arena(tensor), uses_[i]); break;
        case residence::adopted:
          visit_element(tensor.kind, [&](auto type) {
            using stored_type = typename decltype(type)::type;
            if constexpr (is_floating(element_kind_of<stored_type>)) {
              made.add_range(name, static_cast<stored_type*>(tensor.memory), tensor.elements, uses_[i]);
            }
          });
          break;
      }
    }
    return made;
  }

  /// Sets the gradient of slot `s` for this step.
  void fill(std::uint64_t seed, int rank, std::uint64_t step, std::size_t s) {
    for (std::size_t i = 0; i < tensors_[s]->elements; ++i) {
      tensors_[s]->set(i, gradient_of(seed, rank, step, s, i));
    }
  }

  std::size_t size() const { return tensors_.size(); }
  any_tensor& tensor(std::size_t s) { return *tensors_[s]; }
  const any_tensor& tensor(std::size_t s) const { return *tensors_[s]; }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const auto& tensor : tensors_) {
      const auto part = tensor->bytes();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  /// Between -1000 and 1000, over ten orders of magnitude, sometimes zero. The same on every platform.
  static double gradient_of(std::uint64_t seed, int rank, std::uint64_t step, std::size_t s, std::size_t i) {
    std::uint64_t h = seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9U +
                      step * 0x94d049bb133111ebU + s * 0xd6e8feb86659fd93U + i * 0xa0761d6478bd642fU;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93U;
    h ^= h >> 29;
    if (h % 32 == 0) {
      return 0;
    }
    const double mantissa = 1 + static_cast<double>(h >> 44) / double{1 << 20};
    return std::ldexp((h & 32) != 0 ? mantissa : -mantissa, static_cast<int>(h >> 6 & 31) - 23);
  }

 private:
  std::vector<std::unique_ptr<any_tensor>> tensors_;
  std::vector<residence> wheres_;
  std::vector<uses> uses_;
};

/// Seals a trial model's manifest, or another one, with a choice of policies.
template <class Backend>
auto synchronize_trial(manifest gradients, Backend backend, const policy_choice& choice, const step_rules& rules = {}) {
  return synchronize(std::move(gradients), std::move(backend), choice.overlap, choice.compression, choice.bucketing,
                     rules.unused_gradients, rules.average, rules.divide, rules.uses, rules.joined, rules.values);
}

template <class Backend>
auto synchronize_trial(trial_model& model, Backend backend, const policy_choice& choice, const step_rules& rules = {}) {
  return synchronize_trial(model.make_manifest(), std::move(backend), choice, rules);
}

/// The slots in an order of its own for each rank and step.
inline std::vector<std::uint32_t> shuffled_slots(std::size_t count, std::uint64_t seed, int rank, std::uint64_t step) {
  std::vector<std::uint32_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = static_cast<std::uint32_t>(i);
  }
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(rank) * 1000 + step);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace gradweave::tests
