/// @file
/// A bucket of the present plan: what is in it, how much of it is still missing, and the program that reduces it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gradweave/compression/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::detail {

template <stage_program Program>
struct bucket {
  element_kind kind = element_kind::float32;
  std::size_t elements = 0;
  std::vector<bucket_member> members;
  std::vector<extent> memory;
  std::optional<Program> program;

  /// Members that are not ready yet. Each `ready` writes its gradient, then counts down with acquire-release; who then
  /// acquires a zero therefore sees all gradients of the bucket.
  std::atomic<std::uint32_t> missing{0};

  bool complete() const { return missing.load(std::memory_order_acquire) == 0; }
  std::size_t bytes() const { return elements * element_bytes(kind); }
};

}  // namespace gradweave::detail
