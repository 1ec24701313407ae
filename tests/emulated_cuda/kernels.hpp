/// @file
/// device_kernels over the emulated runtime: the host twins, carried by host functions of a stream. They see device memory by
/// its alias.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/device/checks.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/device/host_kernels.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

#include "tests/emulated_cuda/control.hpp"

namespace emulated_cuda {

class kernels {
 public:
  using stream = cudaStream_t;
  using extent_table = gradweave::host_kernels::extent_table;

  /// The table holds aliases: like one on a device, it is for what runs there.
  extent_table prepare(std::span<const gradweave::extent> memory, gradweave::element_kind kind) const {
    std::vector<gradweave::extent> aliases = gradweave::detail::checked_extents(memory, kind);
    for (gradweave::extent& each : aliases) {
      each.memory = alias_of(each.memory);
    }
    return {std::move(aliases), kind};
  }

  void gather(stream on, extent_table& table, std::byte* packed) const {
    gradweave::detail::check_packed(packed);
    launch("gather", on, [&table, to = alias_of(packed)] { twins().gather({}, table, to); });
  }

  void scatter(stream on, extent_table& table, const std::byte* packed, gradweave::scatter_summary* summary) const {
    gradweave::detail::check_packed(packed);
    launch("scatter", on,
           [&table, from = alias_of(packed), to = alias_of(summary)] { twins().scatter({}, table, from, to); });
  }

  void scale(stream on, const gradweave::scale_request& request) const {
    gradweave::detail::check(request);
    auto own = request;
    own.values = alias_of(own.values);
    launch("scale", on, [own] { twins().scale({}, own); });
  }

  void encode(stream on, const gradweave::encode_request& request) const {
    gradweave::detail::check(request);
    auto own = request;
    own.values = alias_of(own.values);
    own.residual = alias_of(own.residual);
    own.wire = alias_of(own.wire);
    own.exponents = alias_of(own.exponents);
    own.non_finite = alias_of(own.non_finite);
    launch("encode", on, [own] { twins().encode({}, own); });
  }

  void sum(stream on, const gradweave::sum_request& request) const {
    gradweave::detail::check(request);
    auto own = request;
    own.wire = alias_of(own.wire);
    own.exponents = alias_of(own.exponents);
    own.sum = alias_of(own.sum);
    launch("sum", on, [own] { twins().sum({}, own); });
  }

  void write_record(stream on, const gradweave::record_request& request) const {
    gradweave::detail::check(request);
    auto own = request;
    own.non_finite = alias_of(own.non_finite);
    own.to = alias_of(own.to);
    launch("write_record", on, [own] { twins().write_record({}, own); });
  }

  void judge_records(stream on, const gradweave::judge_request& request) const {
    gradweave::detail::check(request);
    auto own = request;
    own.records = alias_of(own.records);
    own.verdict = alias_of(own.verdict);
    launch("judge_records", on, [own] { twins().judge_records({}, own); });
  }

 private:
  static gradweave::host_kernels twins() { return {}; }

  static void launch(const char* what, stream on, std::function<void()> work) {
    auto carried = std::make_unique<std::function<void()>>(std::move(work));
    const auto run = [](void* data) {
      const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(data));
      (*own)();
    };
    if (const cudaError_t code = cudaLaunchHostFunc(on, run, carried.get()); code != cudaSuccess) {
      gradweave::failure cause;
      cause.detail = std::string(what) + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code);
      throw gradweave::sync_error(std::move(cause));
    }
    static_cast<void>(carried.release());  // the stream has it; one that is stopped first loses it
  }
};

}  // namespace emulated_cuda
