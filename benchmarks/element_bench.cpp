// How fast do conversions, sums and divisions run, against a memcpy of their float32 side in the same run?
//   bazel run -c opt //benchmarks:element_bench
// bytes_per_second counts the float32 side once (for sums and divisions: the elements in place), so figures compare
// with memcpy's directly. 64 MiB of floats lie outside the caches; 64 KiB lie inside the second level.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>
#include <gradweave/reduction.hpp>

namespace gw = gradweave;

namespace {

enum class input : std::uint8_t { normal, subnormal, zero };

/// Floats that become normal, subnormal or zero float16s.
std::vector<float> floats(std::size_t elements, input kind) {
  std::vector<float> values(elements);
  std::mt19937 random(1);
  for (float& value : values) {
    const auto fraction = static_cast<std::uint32_t>(random());
    const std::uint32_t exponent = kind == input::normal ? 117 + fraction % 8 : 103 + fraction % 9;
    value = kind == input::zero ? 0.0f : std::bit_cast<float>((fraction & 0x807f'ffffu) | exponent << 23);
  }
  return values;
}

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(bytes));
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<float> in = floats(bytes / sizeof(float), input::normal);
  std::vector<float> out(in.size());
  for (auto _ : state) {
    std::memcpy(out.data(), in.data(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

template <class Half, input Kind>
void encode(benchmark::State& state) {
  const std::vector<float> in = floats(static_cast<std::size_t>(state.range(0)) / sizeof(float), Kind);
  std::vector<Half> out(in.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(gw::convert(in, out));
    benchmark::ClobberMemory();
  }
  count_bytes(state, in.size() * sizeof(float));
}

template <class Half, input Kind>
void decode(benchmark::State& state) {
  std::vector<float> out = floats(static_cast<std::size_t>(state.range(0)) / sizeof(float), Kind);
  std::vector<Half> in(out.size());
  static_cast<void>(gw::convert(out, in));
  for (auto _ : state) {
    gw::convert(in, out);
    benchmark::ClobberMemory();
  }
  count_bytes(state, out.size() * sizeof(float));
}

template <class Half>
void decode_add(benchmark::State& state) {
  std::vector<float> out = floats(static_cast<std::size_t>(state.range(0)) / sizeof(float), input::normal);
  std::vector<Half> in(out.size());
  for (auto _ : state) {
    gw::convert_add(in, out);
    benchmark::ClobberMemory();
  }
  count_bytes(state, out.size() * sizeof(float));
}

template <class T, gw::reduction_operation Operation>
void reduce(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> accumulator(bytes);
  const std::vector<std::byte> contribution(bytes);
  for (auto _ : state) {
    gw::reduce_into(Operation, gw::element_kind_of<T>, accumulator.data(), contribution.data(), bytes / sizeof(T));
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

template <class T>
void divide(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> values(bytes);
  for (auto _ : state) {
    gw::divide(gw::element_kind_of<T>, values.data(), bytes / sizeof(T), 3);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

void sizes(benchmark::internal::Benchmark* bench) { bench->Arg(64 << 10)->Arg(64 << 20); }

BENCHMARK(copy)->Apply(sizes);
BENCHMARK(encode<gw::float16, input::normal>)->Apply(sizes);
BENCHMARK(encode<gw::float16, input::subnormal>)->Apply(sizes);
BENCHMARK(encode<gw::float16, input::zero>)->Apply(sizes);
BENCHMARK(encode<gw::bfloat16, input::normal>)->Apply(sizes);
BENCHMARK(encode<gw::bfloat16, input::zero>)->Apply(sizes);
BENCHMARK(decode<gw::float16, input::normal>)->Apply(sizes);
BENCHMARK(decode<gw::float16, input::subnormal>)->Apply(sizes);
BENCHMARK(decode<gw::float16, input::zero>)->Apply(sizes);
BENCHMARK(decode<gw::bfloat16, input::normal>)->Apply(sizes);
BENCHMARK(decode<gw::bfloat16, input::zero>)->Apply(sizes);
BENCHMARK(decode_add<gw::float16>)->Apply(sizes);
BENCHMARK(decode_add<gw::bfloat16>)->Apply(sizes);
BENCHMARK(reduce<float, gw::reduction_operation::sum>)->Apply(sizes);
BENCHMARK(reduce<double, gw::reduction_operation::sum>)->Apply(sizes);
BENCHMARK(reduce<gw::float16, gw::reduction_operation::sum>)->Apply(sizes);
BENCHMARK(reduce<gw::bfloat16, gw::reduction_operation::sum>)->Apply(sizes);
BENCHMARK(reduce<float, gw::reduction_operation::max>)->Apply(sizes);
BENCHMARK(reduce<gw::float16, gw::reduction_operation::max>)->Apply(sizes);
BENCHMARK(divide<float>)->Apply(sizes);
BENCHMARK(divide<double>)->Apply(sizes);
BENCHMARK(divide<gw::float16>)->Apply(sizes);
BENCHMARK(divide<gw::bfloat16>)->Apply(sizes);

}  // namespace
