/// @file
/// Buffers become equal on all ranks at the end of each step: those of one rank, or the average.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/synchronizer/step_record.hpp>
#include <gradweave/tensor/gradient_view.hpp>

namespace gradweave::detail {

/// Throws contract_violation where a buffer is to come from a rank that there is not, or to be averaged by a backend that
/// can't.
template <host_backend Backend>
void check_buffers(std::span<const manifest_buffer> buffers, int size) {
  for (const manifest_buffer& buffer : buffers) {
    if (buffer.rule.from < 0 || buffer.rule.from >= size) {
      violate("synchronize: buffer '" + buffer.name + "' is to come from rank " + std::to_string(buffer.rule.from) +
              "; there are ranks 0 to " + std::to_string(size - 1));
    }
    if (buffer.rule.is_averaged && !can_all_reduce<Backend>) {
      violate("synchronize: buffer '" + buffer.name + "' is to be averaged, and the backend has no all_reduce");
    }
  }
}

/// Float16 and bfloat16 are averaged as float32, so that they are rounded once.
template <class Sum>
constexpr bool sums_as(element_kind kind) {
  return (kind == element_kind::float64) == std::same_as<Sum, double>;
}

/// Calls `use(span of the buffer's own elements)`.
template <class Sum, class Use>
void with_elements(const gradient_view& buffer, Use&& use) {
  visit_element(buffer.kind(), [&]<class T>(std::type_identity<T>) {
    if constexpr (is_floating(element_kind_of<T>)) {
      if constexpr (sums_as<Sum>(element_kind_of<T>)) {
        use(std::span(reinterpret_cast<T*>(buffer.data()), buffer.elements()));
      }
    }
  });
}

/// What all averaged buffers are summed in that have a sum of that type.
template <std::floating_point Sum>
class buffer_sums {
 public:
  explicit buffer_sums(std::span<const manifest_buffer> buffers) {
    std::size_t elements = 0;
    for (const manifest_buffer& each : buffers) {
      elements += is_summed(each) ? each.value.elements() : 0;
    }
    values_.resize(elements);
  }

  /// Averages over `divisor` ranks, of which this is one where it has data.
  template <host_backend Backend>
  void average(Backend& backend, std::span<const manifest_buffer> buffers, std::uint32_t divisor, bool has_data) {
    if (values_.empty()) {
      return;
    }
    if (has_data) {
      for_each(buffers, [](auto buffer, std::span<Sum> sums) {
        copy<typename decltype(buffer)::value_type, Sum>(buffer, sums);
      });
    } else {
      std::ranges::fill(values_, Sum{0});
    }
    const extent whole{reinterpret_cast<std::byte*>(values_.data()), values_.size() * sizeof(Sum), 0};
    run_collective(backend, {.operation = collective::all_reduce,
                             .kind = element_kind_of<Sum>,
                             .reduce = {reduction_operation::sum, divisor},
                             .data = {&whole, 1}});
    for_each(buffers,
             [](auto buffer, std::span<Sum> sums) { copy<Sum, typename decltype(buffer)::value_type>(sums, buffer); });
  }

 private:
  static bool is_summed(const manifest_buffer& buffer) {
    return buffer.rule.is_averaged && sums_as<Sum>(buffer.value.kind());
  }

  template <class From, class To>
  static void copy(std::span<const From> from, std::span<To> to) {
    if constexpr (std::same_as<From, To>) {
      std::ranges::copy(from, to.begin());
    } else {
      convert(from, to);
    }
  }

  /// Calls `use(buffer's elements, its sums)`.
  template <class Use>
  void for_each(std::span<const manifest_buffer> buffers, Use&& use) {
    std::size_t begin = 0;
    for (const manifest_buffer& each : buffers) {
      if (is_summed(each)) {
        const auto sums = std::span(values_).subspan(begin, each.value.elements());
        with_elements<Sum>(each.value, [&](auto elements) { use(elements, sums); });
        begin += sums.size();
      }
    }
  }

  std::vector<Sum> values_;
};

/// Keeps its capacity. The buffers outlive it.
class buffer_exchange {
 public:
  explicit buffer_exchange(std::span<const manifest_buffer> buffers)
      : buffers_(buffers), floats_(buffers), doubles_(buffers) {
    for (const manifest_buffer& each : buffers) {
      if (!each.rule.is_averaged && std::ranges::find(sources_, each.rule.from) == sources_.end()) {
        sources_.push_back(each.rule.from);
      }
    }
    extents_.reserve(buffers.size());
  }

  /// Once the records of a step that ended well have come. Ranks without data take what the others have: they are neither
  /// a source, in whose place the first rank with data comes, nor in an average. Where no rank has data nothing changes.
  template <host_backend Backend>
  void exchange(Backend& backend, std::span<const step_record> records) {
    const auto has_data = [](const step_record& record) { return record.has_data != 0; };
    const auto live = static_cast<std::uint32_t>(std::ranges::count_if(records, has_data));
    if (buffers_.empty() || live == 0) {
      return;
    }
    const auto first_live = std::ranges::find_if(records, has_data) - records.begin();
    for (const int source : sources_) {
      extents_.clear();
      for (const manifest_buffer& each : buffers_) {
        if (!each.rule.is_averaged && each.rule.from == source) {
          append_extent(extents_, each.value.data(), each.value.bytes());
        }
      }
      const bool can_tell = has_data(records[static_cast<std::size_t>(source)]);
      run_collective(backend, {.operation = collective::broadcast,
                               .root = can_tell ? source : static_cast<int>(first_live),
                               .data = extents_});
    }
    if constexpr (can_all_reduce<Backend>) {
      const bool contributes = has_data(records[static_cast<std::size_t>(backend.rank())]);
      floats_.average(backend, buffers_, live, contributes);
      doubles_.average(backend, buffers_, live, contributes);
    }
  }

 private:
  std::span<const manifest_buffer> buffers_;
  std::vector<int> sources_;     // of those that are not averaged
  std::vector<extent> extents_;  // of one source's buffers
  buffer_sums<float> floats_;
  buffer_sums<double> doubles_;
};

}  // namespace gradweave::detail
