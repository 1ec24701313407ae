// How fast is a bare all-reduce? The options and the columns are those of nccl-tests; `--limit` measures beside it what a
// direct reduction in shared memory takes, without any library.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/tcp.hpp>
#include <gradweave/element.hpp>
#include <gradweave/launch.hpp>
#include <gradweave/transport/segment.hpp>
#include <gradweave/transport/spinning.hpp>

namespace {

namespace gw = gradweave;
using std::chrono::steady_clock;

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
};

/// "4K", "1M", "2G" or a number.
std::size_t bytes_of(const std::string& text) {
  std::size_t used = 0;
  std::size_t bytes = std::stoul(text, &used);
  const std::string unit = text.substr(used);
  const std::size_t known = std::string("KMG").find(unit);
  if (!unit.empty() && (unit.size() != 1 || known == std::string::npos)) {
    throw std::invalid_argument("'" + text + "' is no size: give bytes, or a number with K, M or G");
  }
  return unit.empty() ? bytes : bytes << (10 * (known + 1));
}

struct named_kind {
  const char* name;
  gw::element_kind kind;
};
constexpr std::array kinds = {
    named_kind{"float", gw::element_kind::float32}, named_kind{"double", gw::element_kind::float64},
    named_kind{"half", gw::element_kind::float16},  named_kind{"bfloat16", gw::element_kind::bfloat16},
    named_kind{"int32", gw::element_kind::int32},   named_kind{"int64", gw::element_kind::int64}};

struct named_operation {
  const char* name;
  gw::reduction_operation operation;
};
constexpr std::array operations = {named_operation{"sum", gw::reduction_operation::sum},
                                   named_operation{"min", gw::reduction_operation::min},
                                   named_operation{"max", gw::reduction_operation::max}};

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Microseconds a call of `body`, of so many calls.
template <class Body>
double time_of(std::size_t calls, Body&& body) {
  const auto began = steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) {
    body();
  }
  return std::chrono::duration<double, std::micro>(steady_clock::now() - began).count() / static_cast<double>(calls);
}

/// What ranks of one host can do at best: each adds its piece of all buffers and writes the sum into all of them, between
/// two barriers of flags. Memory that the launching process made is mapped by all.
class direct_limit {
 public:
  static constexpr const char* variable = "GRADWEAVE_BENCH_MEMORY";

  static std::size_t bytes_for(int ranks, std::size_t bytes) {
    return static_cast<std::size_t>(ranks) * (flag_bytes + (bytes + 4095) / 4096 * 4096);
  }

  direct_limit(int rank, int size, std::size_t bytes)
      : rank_(rank), memory_(gw::segment::adopt(gw::descriptor(::dup(std::atoi(std::getenv(variable)))))) {
    for (int r = 0; r < size; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * flag_bytes;
      flags_.push_back(reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + at));
      const std::size_t buffer =
          static_cast<std::size_t>(size) * flag_bytes + static_cast<std::size_t>(r) * ((bytes + 4095) / 4096 * 4096);
      buffers_.push_back(reinterpret_cast<float*>(memory_.data() + buffer));
    }
  }

  void run(std::size_t elements) {
    const std::size_t share = (elements / buffers_.size() + 15) / 16 * 16;
    const std::size_t begin = std::min(elements, static_cast<std::size_t>(rank_) * share);
    barrier();
    add(begin, std::min(elements, begin + share));
    barrier();
  }

  /// From one rank to another and back, by a flag: half of it, in nanoseconds.
  double flag_latency() {
    constexpr std::size_t rounds = 2000;
    return time_of(rounds, [&] { barrier(); }) * 1000;
  }

 private:
  static constexpr std::size_t flag_bytes = 128;

  void barrier() {
    flags_[static_cast<std::size_t>(rank_)]->store(++round_, std::memory_order_release);
    for (const auto* flag : flags_) {
      while (!gw::spin_until([&] { return flag->load(std::memory_order_acquire) >= round_; })) {
      }
    }
  }

  /// A stretch at a time that stays in the first-level cache. Going through all buffers line by line took twice as long.
  GRADWEAVE_VECTOR_TARGET void add(std::size_t begin, std::size_t end) {
    using lanes = float __attribute__((vector_size(32)));
    constexpr std::size_t lane_count = sizeof(lanes) / sizeof(float);
    alignas(64) std::array<float, 2048> sums;
    for (; begin < end; begin += sums.size()) {
      const std::size_t count = std::min(sums.size(), end - begin);
      std::memcpy(sums.data(), buffers_[0] + begin, count * sizeof(float));
      for (std::size_t r = 1; r < buffers_.size(); ++r) {
        const float* const more = buffers_[r] + begin;
        std::size_t i = 0;
        for (; i + lane_count <= count; i += lane_count) {
          lanes a, b;
          std::memcpy(&a, &sums[i], sizeof a);
          std::memcpy(&b, more + i, sizeof b);
          a += b;
          std::memcpy(&sums[i], &a, sizeof a);
        }
        for (; i < count; ++i) {
          sums[i] += more[i];
        }
      }
      for (float* const buffer : buffers_) {
        std::memcpy(buffer + begin, sums.data(), count * sizeof(float));
      }
    }
  }

  int rank_;
  gw::segment memory_;
  std::vector<std::atomic<std::uint64_t>*> flags_;
  std::vector<float*> buffers_;
  std::uint64_t round_ = 0;
};

/// Rank r's element i, small enough that every kind holds the sum.
template <class T>
T value_of(int rank, std::size_t i) {
  return static_cast<T>((i * 3 + static_cast<std::size_t>(rank)) % 5);
}

template <class T>
T expected_of(int size, std::size_t i, gw::reduction_operation operation) {
  T result = value_of<T>(0, i);
  for (int r = 1; r < size; ++r) {
    const T next = value_of<T>(r, i);
    switch (operation) {
      case gw::reduction_operation::sum: result = static_cast<T>(result + next); break;
      case gw::reduction_operation::min: result = std::min(result, next); break;
      case gw::reduction_operation::max: result = std::max(result, next); break;
    }
  }
  return result;
}

/// One rank's part.
class measurement {
 public:
  measurement(const bench_options& options, gw::backend::tcp::backend_type backend)
      : options_(options),
        backend_(std::move(backend)),
        kind_(find(kinds, options.type, "-d").kind),
        operation_(find(operations, options.operation, "-o").operation),
        bytes_max_(bytes_of(options.end)),
        data_(backend_.allocate_arena(bytes_max_)),
        source_(backend_.allocate_arena(bytes_max_)) {
    if (options.limit) {
      limit_.emplace(backend_.rank(), backend_.size(), bytes_max_);
    }
  }

  void run() {
    print_heading();
    for (std::size_t bytes = bytes_of(options_.begin); bytes <= bytes_max_; bytes *= options_.factor) {
      measure(bytes / gw::element_bytes(kind_) * gw::element_bytes(kind_));
      if (options_.factor < 2) {
        break;
      }
    }
  }

 private:
  bool prints() const { return backend_.rank() == 0; }

  void print_heading() const {
    if (!prints()) {
      return;
    }
    gw::description here;
    backend_.describe_here(here);
    std::printf("# gradweave all_reduce, %d ranks, algorithm %s, %zu iterations, medians of %zu repeats\n",
                backend_.size(), options_.algorithm.c_str(), options_.iterations, options_.repeats);
    for (const auto& [key, value] : here.entries()) {
      std::printf("# %s: %s\n", key.c_str(), value.c_str());
    }
    std::printf("# out of place is a copy and an all-reduce in place; there is no other\n");
    std::printf("#%11s %12s %8s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s", "size", "count", "type", "redop", "root",
                "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    std::printf(limit_ ? " %9s %6s %7s\n" : "\n", "limit", "ratio", "flag");
    std::printf("#%11s %12s %8s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s", "(B)", "(elements)", "", "", "", "(us)",
                "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    std::printf(limit_ ? " %9s %6s %7s\n" : "\n", "(us)", "", "(ns)");
  }

  void measure(std::size_t bytes) {
    const gw::extent whole{data_.data(), bytes, 0};
    const auto reduce = [&] {
      gw::run_collective(
          backend_,
          {.operation = gw::collective::all_reduce, .kind = kind_, .reduce = {operation_, 1}, .data = {&whole, 1}});
    };
    const auto out_of_place = [&] {
      std::copy_n(source_.data(), bytes, data_.data());
      reduce();
    };
    std::vector<double> apart, in_place, limits, ratios, flags;
    for (std::size_t i = 0; i < options_.warm_ups; ++i) {
      out_of_place();
    }
    for (std::size_t repeat = 0; repeat < options_.repeats; ++repeat) {
      if (limit_) {
        flags.push_back(limit_->flag_latency());
        limits.push_back(time_of(options_.iterations, [&] { limit_->run(bytes / sizeof(float)); }));
      }
      gw::run_collective(backend_, {.operation = gw::collective::barrier});
      in_place.push_back(time_of(options_.iterations, reduce));
      if (limit_) {
        ratios.push_back(in_place.back() / limits.back());
      }
      gw::run_collective(backend_, {.operation = gw::collective::barrier});
      apart.push_back(time_of(options_.iterations, out_of_place));
      std::fill_n(data_.data(), bytes, std::byte{0});  // or sums of sums grow without bound
    }
    print(bytes, {median(apart), median(in_place)}, options_.check ? count_wrong(bytes, reduce) : 0);
    if (prints()) {
      if (limit_) {
        std::printf(" %9.2f %6.2f %7.0f", median(limits), median(ratios), median(flags));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }

  /// Of all ranks together.
  template <class Reduce>
  std::size_t count_wrong(std::size_t bytes, Reduce&& reduce) {
    std::int64_t wrong = 0;
    gw::visit_element(kind_, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_arithmetic_v<T>) {
        T* const source = reinterpret_cast<T*>(source_.data());
        const T* const data = reinterpret_cast<const T*>(data_.data());
        for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
          source[i] = value_of<T>(backend_.rank(), i);
        }
        std::copy_n(source_.data(), bytes, data_.data());
        reduce();
        for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
          wrong += data[i] == expected_of<T>(backend_.size(), i, operation_) ? 0 : 1;
        }
      }
    });
    const gw::extent all{reinterpret_cast<std::byte*>(&wrong), sizeof wrong, 0};
    gw::run_collective(backend_,
                       {.operation = gw::collective::all_reduce, .kind = gw::element_kind::int64, .data = {&all, 1}});
    return static_cast<std::size_t>(wrong);
  }

  void print(std::size_t bytes, std::array<double, 2> times, std::size_t wrong) const {
    if (!prints()) {
      return;
    }
    const double ranks = backend_.size();
    std::printf("%12zu %12zu %8s %6s %6d", bytes, bytes / gw::element_bytes(kind_), options_.type.c_str(),
                options_.operation.c_str(), -1);
    for (const double time : times) {
      const double bandwidth = static_cast<double>(bytes) / time / 1000;
      std::printf(" %9.2f %7.2f %7.2f", time, bandwidth, bandwidth * 2 * (ranks - 1) / ranks);
      options_.check ? std::printf(" %6zu", wrong) : std::printf(" %6s", "N/A");
    }
  }

  const bench_options& options_;
  gw::backend::tcp::backend_type backend_;
  gw::element_kind kind_;
  gw::reduction_operation operation_;
  std::size_t bytes_max_;
  decltype(backend_.allocate_arena(0)) data_;
  decltype(backend_.allocate_arena(0)) source_;
  std::optional<direct_limit> limit_;
};

int run(int count, char** arguments) {
  bench_options options;
  CLI::App app("Measures all-reduces of many sizes between processes of this host.");
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(1, 64));
  app.add_option("-b,--minbytes", options.begin, "the smallest size; K, M and G are understood");
  app.add_option("-e,--maxbytes", options.end, "the largest size");
  app.add_option("-f,--stepfactor", options.factor, "from one size to the next")->check(CLI::Range(2, 1024));
  app.add_option("-n,--iters", options.iterations, "calls a repeat")->check(CLI::Range(1, 1'000'000));
  app.add_option("-w,--warmup_iters", options.warm_ups, "calls before a size is measured");
  app.add_option("-r,--repeats", options.repeats, "of which the median is given")->check(CLI::Range(1, 1000));
  app.add_option("-c,--check", options.check, "compare the results with what they should be: 0 or 1");
  app.add_option("-o,--op", options.operation, "sum, min or max");
  app.add_option("-d,--datatype", options.type, "float, double, half, bfloat16, int32 or int64");
  app.add_option("--algorithm", options.algorithm, "as GRADWEAVE_ALGORITHM");
  app.add_option("--share-memory", options.share_memory, "0: by messages over TCP");
  app.add_flag("--limit", options.limit, "measure in turns with a direct reduction in shared memory");
  CLI11_PARSE(app, count, arguments);
  const std::size_t bytes_max = bytes_of(options.end);
  const auto algorithm = gw::algorithm_named(options.algorithm);
  if (!algorithm) {
    throw std::invalid_argument("'" + options.algorithm + "' is no algorithm");
  }
  if (gw::is_launched()) {
    auto place = gw::backend::tcp::options_from_environment({.algorithm = *algorithm});
    place.share_memory = options.share_memory;
    measurement(options, gw::backend::tcp::from_options(place)).run();
    return 0;
  }
  std::optional<gw::segment> memory;
  std::optional<gw::descriptor> inherited;
  if (options.limit) {
    memory = gw::segment::create(direct_limit::bytes_for(options.ranks, bytes_max));
    inherited.emplace(::dup(memory->handle()));  // stays open in the ranks
    ::setenv(direct_limit::variable, std::to_string(inherited->number()).c_str(), 1);
  }
  return gw::launch({arguments, static_cast<std::size_t>(count)}, {.ranks = options.ranks, .name_ranks = false});
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
