/// @file
/// device_kernels for CUDA, but for how a kernel is launched: cuda_kernels.cuh says that in nvcc's words, and a test that runs the
/// kernels' source on the host in its own. Operations are enqueued and return; cuda_device_code.cuh has what runs on the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/device/arithmetic.hpp>
#include <gradweave/device/checks.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/device/cuda_device_code.cuh>
#include <gradweave/element.hpp>
#include <gradweave/element/float8_block.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

namespace detail {

/// Throws sync_error with CUDA's words for it.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    failure cause;
    cause.detail = std::string(what) + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code);
    throw sync_error(std::move(cause));
  }
}

struct device_memory_deleter {
  void operator()(std::byte* memory) const noexcept { static_cast<void>(cudaFree(memory)); }
};

/// Calls `use(type_identity<T>)` with the unsigned integer of an element's size.
template <class Use>
void visit_unit(std::size_t bytes, Use&& use) {
  switch (bytes) {
    case 1: return use(std::type_identity<std::uint8_t>{});
    case 2: return use(std::type_identity<std::uint16_t>{});
    case 4: return use(std::type_identity<std::uint32_t>{});
    case 8: return use(std::type_identity<std::uint64_t>{});
    default: violate("cuda_kernels: no element has that size");
  }
}

}  // namespace detail

/// Models device_kernels, on memory of the device that is current where it is made. It keeps nothing but that device's size.
/// `Launcher::launch(blocks, threads of a block, stream, kernel, arguments...)` launches.
template <class Launcher>
class basic_cuda_kernels {
 public:
  using stream = cudaStream_t;

  /// The list of extents on the device, and room for what a scatter finds out. One stream at a time uses it.
  class extent_table {
   public:
    element_kind kind() const { return kind_; }

   private:
    friend class basic_cuda_kernels;

    element_kind kind_ = element_kind::float32;
    std::unique_ptr<std::byte, detail::device_memory_deleter> memory_;
    detail::device_extents extents_;
    scatter_summary* tiles_ = nullptr;
    unsigned* arrived_ = nullptr;
  };

  /// Throws sync_error without a device.
  basic_cuda_kernels() {
    int device = 0, processors = 0;
    detail::check_cuda(cudaGetDevice(&device), "cuda_kernels: the current device");
    detail::check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                       "cuda_kernels: the number of multiprocessors");
    // Two thousand threads fill a multiprocessor.
    blocks_max_ = static_cast<std::size_t>(processors) * (2048 / detail::tile_threads);
  }

  /// The extents are of device memory. It allocates on the device and waits for it.
  extent_table prepare(std::span<const extent> memory, element_kind kind) const {
    const std::vector<extent> extents = detail::checked_extents(memory, kind);
    extent_table table;
    table.kind_ = kind;
    const std::size_t bytes = total_bytes(extents);
    const std::size_t summaries = detail::tiles_of(bytes) * sizeof(scatter_summary);
    const std::size_t list = extents.size() * sizeof(extent);
    void* allocated = nullptr;
    detail::check_cuda(cudaMalloc(&allocated, summaries + list + sizeof(unsigned)), "prepare: a table of extents");
    table.memory_.reset(static_cast<std::byte*>(allocated));
    table.tiles_ = reinterpret_cast<scatter_summary*>(table.memory_.get());
    std::byte* const on_device = table.memory_.get() + summaries;
    table.arrived_ = reinterpret_cast<unsigned*>(on_device + list);
    table.extents_ = {reinterpret_cast<const extent*>(on_device), extents.size(), bytes};
    if (list != 0) {
      detail::check_cuda(cudaMemcpy(on_device, extents.data(), list, cudaMemcpyHostToDevice), "prepare: its copy");
    }
    detail::check_cuda(cudaMemset(table.arrived_, 0, sizeof(unsigned)), "prepare: its counter");
    // A memset may still run when it returns, and the streams of operations need not wait for the one it runs on.
    detail::check_cuda(cudaStreamSynchronize(nullptr), "prepare");
    return table;
  }

  void gather(stream on, extent_table& table, std::byte* packed) const {
    detail::check_packed(packed);
    const std::size_t tiles = detail::tiles_of(table.extents_.bytes);
    detail::visit_unit(element_bytes(table.kind_), [&]<class Unit>(std::type_identity<Unit>) {
      launch("gather", on, tiles, detail::gather_kernel<Unit>, table.extents_, packed);
    });
  }

  /// With a summary the elements must be floating.
  void scatter(stream on, extent_table& table, const std::byte* packed, scatter_summary* summary) const {
    detail::check_packed(packed);
    const std::size_t tiles = detail::tiles_of(table.extents_.bytes);
    if (summary == nullptr) {
      detail::visit_unit(element_bytes(table.kind_), [&]<class Unit>(std::type_identity<Unit>) {
        launch("scatter", on, tiles, detail::scatter_kernel<Unit>, table.extents_, packed);
      });
      return;
    }
    detail::visit_floating(table.kind_, [&]<class T>(std::type_identity<T>) {
      // Of no elements too there is a summary.
      launch("scatter", on, std::max<std::size_t>(tiles, 1), detail::scatter_and_summarize_kernel<T>, table.extents_,
             packed, table.tiles_, table.arrived_, summary);
    });
  }

  void scale(stream on, const scale_request& request) const {
    detail::check(request);
    detail::visit_floating(request.kind, [&]<class T>(std::type_identity<T>) {
      launch("scale", on, blocks_for(request.elements, detail::word_bytes / sizeof(T)), detail::scale_kernel<T>,
             reinterpret_cast<T*>(request.values), request.elements, request.factor);
    });
  }

  void encode(stream on, const encode_request& request) const {
    detail::check(request);
    detail::visit_format(request.format, [&]<wire_format Format>(std::integral_constant<wire_format, Format>) {
      if constexpr (has_exponents(Format)) {
        launch("encode", on, blocks_for(request.elements, float8_block_elements / detail::warp_threads),
               detail::encode_blocks_kernel<Format>, request);
      } else {
        launch("encode", on, blocks_for(request.elements, Format == wire_format::float32 ? 4 : 8),
               detail::encode_kernel<Format>, request);
      }
    });
  }

  void sum(stream on, const sum_request& request) const {
    detail::check(request);
    detail::visit_format(request.format, [&]<wire_format Format>(std::integral_constant<wire_format, Format>) {
      constexpr bool is_half = Format == wire_format::float16 || Format == wire_format::bfloat16;
      launch("sum", on, blocks_for(request.elements, is_half ? 8 : 4), detail::sum_kernel<Format>, request);
    });
  }

  void write_record(stream on, const record_request& request) const {
    detail::check(request);
    launch("write_record", on, 1, detail::write_record_kernel<record_request>, request);
  }

  void judge_records(stream on, const judge_request& request) const {
    detail::check(request);
    launch("judge_records", on, 1, detail::judge_records_kernel<judge_request>, request);
  }

 private:
  /// How many blocks it takes for one pass without strides, at so many elements a thread.
  static std::size_t blocks_for(std::size_t elements, std::size_t elements_a_thread) {
    return detail::quotient_up(elements, elements_a_thread * detail::tile_threads);
  }

  /// Launches nothing where there is nothing to do.
  template <class... Parameters, class... Arguments>
  void launch(const char* what, stream on, std::size_t blocks, void (*kernel)(Parameters...),
              Arguments... arguments) const {
    if (blocks != 0) {
      const auto grid = static_cast<unsigned>(std::min(blocks, blocks_max_));
      Launcher::launch(grid, static_cast<unsigned>(detail::tile_threads), on, kernel, arguments...);
      detail::check_cuda(cudaGetLastError(), what);
    }
  }

  std::size_t blocks_max_ = 1;
};

}  // namespace gradweave
