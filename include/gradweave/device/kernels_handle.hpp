/// @file
/// Kernels whose type is known in another file. Kernels for a device are compiled by its compiler, which takes long and does
/// not take every library: with a handle one small file is compiled by it, and the program by its own compiler.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// Models device_kernels, and is copied: copies share the kernels. Costs a call through a pointer an operation.
///
/// Example: a file for nvcc defines `gw::kernels_handle<cudaStream_t> make_kernels() { return gw::cuda_kernels{}; }`.
template <std::copyable Stream>
class kernels_handle {
 public:
  using stream = Stream;

  class extent_table {
   private:
    friend class kernels_handle;
    explicit extent_table(std::shared_ptr<void> table) : table_(std::move(table)) {}

    std::shared_ptr<void> table_;  // that knows how to end it; never shared
  };

  /// Asks first whether it is a copy: what a copy is made from is no question of kernels.
  template <class Kernels>
    requires(!std::same_as<Kernels, kernels_handle>) && device_kernels<Kernels> &&
            std::same_as<typename Kernels::stream, Stream>
  kernels_handle(Kernels kernels) : kernels_(std::make_shared<const Kernels>(std::move(kernels))) {
    calls_ = &calls_of<Kernels>;
  }

  extent_table prepare(std::span<const extent> memory, element_kind kind) const {
    return extent_table(calls_->prepare(kernels_.get(), memory, kind));
  }
  void gather(stream on, extent_table& table, std::byte* packed) const {
    calls_->gather(kernels_.get(), on, table.table_.get(), packed);
  }
  void scatter(stream on, extent_table& table, const std::byte* packed, scatter_summary* summary) const {
    calls_->scatter(kernels_.get(), on, table.table_.get(), packed, summary);
  }
  void scale(stream on, const scale_request& request) const { calls_->scale(kernels_.get(), on, request); }
  void encode(stream on, const encode_request& request) const { calls_->encode(kernels_.get(), on, request); }
  void sum(stream on, const sum_request& request) const { calls_->sum(kernels_.get(), on, request); }
  void write_record(stream on, const record_request& request) const {
    calls_->write_record(kernels_.get(), on, request);
  }
  void judge_records(stream on, const judge_request& request) const {
    calls_->judge_records(kernels_.get(), on, request);
  }

 private:
  template <class Request>
  using call = void (*)(const void*, const Stream&, const Request&);

  struct calls {
    std::shared_ptr<void> (*prepare)(const void*, std::span<const extent>, element_kind);
    void (*gather)(const void*, const Stream&, void*, std::byte*);
    void (*scatter)(const void*, const Stream&, void*, const std::byte*, scatter_summary*);
    call<scale_request> scale;
    call<encode_request> encode;
    call<sum_request> sum;
    call<record_request> write_record;
    call<judge_request> judge_records;
  };

  template <class Kernels>
  static const Kernels& known(const void* kernels) {
    return *static_cast<const Kernels*>(kernels);
  }
  template <class Kernels>
  static typename Kernels::extent_table& known_table(void* table) {
    return *static_cast<typename Kernels::extent_table*>(table);
  }

  template <class Kernels>
  static constexpr calls calls_of = {
      [](const void* own, std::span<const extent> memory, element_kind kind) -> std::shared_ptr<void> {
        return std::make_shared<typename Kernels::extent_table>(known<Kernels>(own).prepare(memory, kind));
      },
      [](const void* own, const Stream& on, void* table, std::byte* packed) {
        known<Kernels>(own).gather(on, known_table<Kernels>(table), packed);
      },
      [](const void* own, const Stream& on, void* table, const std::byte* packed, scatter_summary* summary) {
        known<Kernels>(own).scatter(on, known_table<Kernels>(table), packed, summary);
      },
      [](const void* own, const Stream& on, const scale_request& request) { known<Kernels>(own).scale(on, request); },
      [](const void* own, const Stream& on, const encode_request& request) { known<Kernels>(own).encode(on, request); },
      [](const void* own, const Stream& on, const sum_request& request) { known<Kernels>(own).sum(on, request); },
      [](const void* own, const Stream& on, const record_request& request) {
        known<Kernels>(own).write_record(on, request);
      },
      [](const void* own, const Stream& on, const judge_request& request) {
        known<Kernels>(own).judge_records(on, request);
      },
  };

  std::shared_ptr<const void> kernels_;
  const calls* calls_ = nullptr;
};

}  // namespace gradweave
