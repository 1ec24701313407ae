/// @file
/// Random operations of device_kernels beside those of their host twins, which have to leave the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gradweave/device/concept.hpp>
#include <gradweave/device/host_kernels.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/float8_block.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::tests {

/// A buffer twice: in the kernels' memory and in the host's, with the same random bytes, and some around it that nobody may
/// write. Memory has allocate(bytes), which lies on 256 bytes and lives as long as the memory, write(to, from, bytes),
/// read(to, from, bytes), stream() and synchronize().
template <class Memory>
class mirrored {
 public:
  mirrored(Memory& memory, std::size_t bytes, std::mt19937_64& random)
      : memory_(memory), host_(bytes + 2 * guard_bytes), device_(memory.allocate(host_.size())) {
    std::generate(host_.begin(), host_.end(), [&] { return static_cast<std::byte>(random()); });
    update();
  }

  std::byte* host() { return host_.data() + guard_bytes; }
  std::byte* device() { return device_ + guard_bytes; }

  /// Copies what the host has.
  void update() { memory_.write(device_, host_.data(), host_.size()); }

  bool is_same() const {
    std::vector<std::byte> seen(host_.size());
    memory_.read(seen.data(), device_, seen.size());
    return seen == host_;
  }

 private:
  static constexpr std::size_t guard_bytes = 64;

  Memory& memory_;
  std::vector<std::byte> host_;  // operator new aligns by 16
  std::byte* device_;
};

/// What all trials of one seed share.
template <device_kernels Kernels, class Memory>
class kernel_trial {
 public:
  kernel_trial(const Kernels& kernels, Memory& memory, std::uint64_t seed)
      : kernels_(kernels), memory_(memory), random_(seed) {}

  /// The name of the first operation that leaves other bits than its twin, or nothing.
  std::string run() {
    for (const element_kind kind : {element_kind::float32, element_kind::float64, element_kind::float16,
                                    element_kind::bfloat16, element_kind::uint8}) {
      if (!moves_alike(kind)) {
        return "gather and scatter of " + std::string(element_name(kind));
      }
      if (is_floating(kind) && !scales_alike(kind)) {
        return "scale of " + std::string(element_name(kind));
      }
    }
    for (const wire_format format : {wire_format::float32, wire_format::float16, wire_format::bfloat16,
                                     wire_format::float8_e4m3, wire_format::float8_e5m2}) {
      const std::string name = " in format " + std::to_string(static_cast<int>(format));
      if (!encodes_alike(format)) {
        return "encode" + name;
      }
      if (!sums_alike(format)) {
        return "sum" + name;
      }
    }
    return records_alike() ? "" : "write_record and judge_records";
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  std::size_t some_elements() {
    constexpr std::size_t sizes[] = {0, 1, 3, 127, 128, 129, 2048, 5000, 70001};
    return sizes[below(std::size(sizes))];
  }
  static std::size_t wire_element_bytes(wire_format format) {
    return format == wire_format::float32 ? 4 : has_exponents(format) ? 1 : 2;
  }

  /// Floats of like magnitudes, some of any bits at all.
  void make_floats(std::byte* to, std::size_t count) {
    std::uniform_real_distribution<float> like(-1, 1);
    const float magnitude = std::ldexp(1.0f, static_cast<int>(below(40)) - 20);
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<std::uint32_t>(random_());
      const float value = below(50) == 0 ? std::bit_cast<float>(bits) : magnitude * like(random_);
      std::memcpy(to + i * sizeof(value), &value, sizeof(value));
    }
  }

  bool moves_alike(element_kind kind) {
    const std::size_t size = element_bytes(kind);
    constexpr std::size_t counts[] = {0, 1, 4, 300};
    const std::size_t count = counts[below(std::size(counts))];
    std::vector<extent> on_host, on_device;
    std::vector<std::size_t> places;
    std::size_t at = 0, bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t elements = below(10) == 0 ? below(20'000) : below(100);
      at += size * below(9);
      places.push_back(at);
      on_host.push_back({nullptr, elements * size, bytes});
      at += elements * size;
      bytes += elements * size;
    }
    mirrored memory(memory_, at, random_), packed(memory_, bytes, random_);
    mirrored summary(memory_, sizeof(scatter_summary), random_);
    on_device = on_host;
    for (std::size_t i = 0; i < count; ++i) {
      on_host[i].memory = memory.host() + places[i];
      on_device[i].memory = memory.device() + places[i];
    }
    auto table = kernels_.prepare(on_device, kind);
    auto twin_table = twins_.prepare(on_host, kind);
    kernels_.gather(memory_.stream(), table, packed.device());
    twins_.gather({}, twin_table, packed.host());
    memory_.synchronize();
    if (!memory.is_same() || !packed.is_same()) {
      return false;
    }
    const bool summarizes = is_floating(kind) && below(4) != 0;
    std::generate_n(packed.host(), bytes, [&] { return static_cast<std::byte>(random_()); });
    packed.update();
    for (int repetition = 0; repetition < 2; ++repetition) {  // a table is used again in each step
      summary.update();
      kernels_.scatter(memory_.stream(), table, packed.device(),
                       summarizes ? reinterpret_cast<scatter_summary*>(summary.device()) : nullptr);
    }
    twins_.scatter({}, twin_table, packed.host(),
                   summarizes ? reinterpret_cast<scatter_summary*>(summary.host()) : nullptr);
    memory_.synchronize();
    return memory.is_same() && packed.is_same() && summary.is_same();
  }

  bool scales_alike(element_kind kind) {
    const std::size_t elements = some_elements(), offset = element_bytes(kind) * below(8);
    mirrored values(memory_, offset + elements * element_bytes(kind), random_);
    scale_request request{kind, values.device() + offset, elements, 1.0 / static_cast<double>(1 + below(5))};
    kernels_.scale(memory_.stream(), request);
    request.values = values.host() + offset;
    twins_.scale({}, request);
    memory_.synchronize();
    return values.is_same();
  }

  bool encodes_alike(wire_format format) {
    const std::size_t elements = some_elements(), offset = below(5);
    mirrored values(memory_, (offset + elements) * sizeof(float), random_);
    mirrored residual(memory_, (offset + elements) * sizeof(float), random_);
    mirrored wire(memory_, (offset + elements) * wire_element_bytes(format), random_);
    mirrored exponents(memory_, float8_blocks(elements) * sizeof(std::int32_t), random_);
    mirrored non_finite(memory_, sizeof(std::uint64_t), random_);
    make_floats(values.host(), offset + elements);
    make_floats(residual.host(), offset + elements);
    values.update();
    residual.update();
    const bool feeds_back = below(2) == 0, counts = below(4) != 0;
    const auto request = [&](auto side) {
      return encode_request{
          .format = format,
          .values = reinterpret_cast<float*>(side(values)) + offset,
          .residual = feeds_back ? reinterpret_cast<float*>(side(residual)) + offset : nullptr,
          .elements = elements,
          .wire = side(wire) + offset * wire_element_bytes(format),
          .exponents = has_exponents(format) ? reinterpret_cast<std::int32_t*>(side(exponents)) : nullptr,
          .non_finite = counts ? reinterpret_cast<std::uint64_t*>(side(non_finite)) : nullptr,
      };
    };
    kernels_.encode(memory_.stream(), request([](auto& buffer) { return buffer.device(); }));
    twins_.encode({}, request([](auto& buffer) { return buffer.host(); }));
    memory_.synchronize();
    return values.is_same() && residual.is_same() && wire.is_same() && exponents.is_same() && non_finite.is_same();
  }

  bool sums_alike(wire_format format) {
    const std::size_t elements = some_elements(), pieces = 1 + below(5), size = wire_element_bytes(format);
    const std::size_t stride = elements * size + size * below(20), exponent_stride = float8_blocks(elements) + below(3);
    mirrored wire(memory_, pieces * stride, random_);
    mirrored exponents(memory_, pieces * exponent_stride * sizeof(std::int32_t), random_);
    mirrored sum(memory_, (elements + 1) * sizeof(float), random_);
    if (format == wire_format::float32) {
      make_floats(wire.host(), pieces * stride / sizeof(float));
      wire.update();
    }
    for (std::size_t i = 0; i < pieces * exponent_stride; ++i) {
      const auto exponent = static_cast<std::int32_t>(below(300)) - 150;
      std::memcpy(exponents.host() + i * sizeof(exponent), &exponent, sizeof(exponent));
    }
    exponents.update();
    const std::size_t offset = below(2);
    const auto divisor = static_cast<std::uint32_t>(1 + below(4));
    const auto request = [&](auto side) {
      return sum_request{
          .format = format,
          .pieces = pieces,
          .wire = side(wire),
          .exponents = reinterpret_cast<const std::int32_t*>(side(exponents)),
          .wire_stride_bytes = stride,
          .exponent_stride_elements = exponent_stride,
          .elements = elements,
          .divisor = divisor,
          .sum = reinterpret_cast<float*>(side(sum)) + offset,
      };
    };
    kernels_.sum(memory_.stream(), request([](auto& buffer) { return buffer.device(); }));
    twins_.sum({}, request([](auto& buffer) { return buffer.host(); }));
    memory_.synchronize();
    return wire.is_same() && exponents.is_same() && sum.is_same();
  }

  /// Of several ranks, some of which have ended another step.
  bool records_alike() {
    constexpr std::size_t ranks = 5;
    mirrored records(memory_, ranks * sizeof(step_record), random_);
    mirrored counter(memory_, sizeof(std::uint64_t), random_);
    mirrored verdict(memory_, sizeof(step_verdict), random_);
    const std::size_t judged = 1 + below(ranks), odd = below(8);
    for (std::size_t r = 0; r < ranks; ++r) {
      const step_record own{.step = 7, .accumulated = r == odd ? 3U : 2U, .has_data = std::uint8_t{below(4) != 0}};
      const auto at = [&](auto side) { return reinterpret_cast<step_record*>(side(records)) + r; };
      const auto write = [&](const auto& kernels, auto stream, auto side) {
        kernels.write_record(stream, {own, reinterpret_cast<std::uint64_t*>(side(counter)), at(side)});
        kernels.judge_records(stream, {reinterpret_cast<const step_record*>(side(records)), judged,
                                       reinterpret_cast<step_verdict*>(side(verdict))});
      };
      write(kernels_, memory_.stream(), [](auto& buffer) { return buffer.device(); });
      write(twins_, host_stream{}, [](auto& buffer) { return buffer.host(); });
      memory_.synchronize();
      if (!records.is_same() || !counter.is_same() || !verdict.is_same()) {
        return false;
      }
    }
    return true;
  }

  const Kernels& kernels_;
  Memory& memory_;
  std::mt19937_64 random_;
  host_kernels twins_;
};

/// The first difference that so many seeds find, with its seed, or nothing.
template <device_kernels Kernels, class Memory>
std::string compare_with_twins(const Kernels& kernels, Memory& memory, std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string difference = kernel_trial<Kernels, Memory>(kernels, memory, seed).run();
    if (!difference.empty()) {
      return difference + " differs from its twin with seed " + std::to_string(seed);
    }
  }
  return {};
}

}  // namespace gradweave::tests
