// One rank's part of the all-reduce benchmark, and rank 0's table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/tcp.hpp>
#include <gradweave/element.hpp>

#include "benchmarks/all_reduce/limits.hpp"
#include "benchmarks/all_reduce/options.hpp"
#include "benchmarks/all_reduce/peers.hpp"
#include "benchmarks/all_reduce/timing.hpp"
#include "benchmarks/all_reduce/values.hpp"
#include "benchmarks/command.hpp"

namespace gradweave::bench {

class measurement {
 public:
  measurement(const bench_options& options, backend::tcp::backend_type backend)
      : options_(options),
        backend_(std::move(backend)),
        kind_(find(kinds, options.type, "-d").kind),
        operation_(find(operations, options.operation, "-o").operation),
        bytes_max_(bytes_of(options.end)),
        data_(backend_.allocate_arena(bytes_max_)),
        source_(backend_.allocate_arena(bytes_max_)) {
    if (options.limit && options.share_memory) {
      memory_limit_.emplace(backend_.rank(), backend_.size(), bytes_max_, options.limit_pulls);
    } else if (options.limit) {
      socket_limit_.emplace(backend_.rank(), backend_.size(), bytes_max_);
    }
    for (const std::string& name : options.peers) {
      if (is_first()) {
        peers_.emplace_back(name, backend_.size());
      }
    }
  }

  void run() {
    describe();
    for (std::size_t bytes = bytes_of(options_.begin); bytes <= bytes_max_; bytes *= options_.factor) {
      measure(bytes / element_bytes(kind_) * element_bytes(kind_));
    }
    if (is_first() && !options_.json.empty()) {
      std::ofstream file(options_.json);
      file << report_.dump(2) << '\n';
      if (!file.flush()) {
        throw std::runtime_error("-J: can't write " + options_.json);
      }
    }
  }

 private:
  /// What the repeats of one size gave, in microseconds a call.
  struct figures {
    std::vector<double> apart, in_place, limits, flags_ns;
    struct peer_figures {
      std::vector<double> times, ratios;
      std::size_t wrong = 0;
      std::string chosen;
    };
    std::vector<peer_figures> peers;
    std::size_t wrong = 0;

    double limit_ratio() const {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < limits.size(); ++i) {
        ratios.push_back(in_place[i] / limits[i]);
      }
      return median(ratios);
    }
  };

  bool is_first() const { return backend_.rank() == 0; }

  void describe() {
    if (!is_first()) {
      return;
    }
    std::printf("# gradweave all_reduce, %d ranks, %zu iterations, medians of %zu repeats\n", backend_.size(),
                options_.iterations, options_.repeats);
    description about;
    backend_.describe(about);
    backend_.describe_here(about);
    for (const auto& [key, value] : about.entries()) {
      std::printf("# %s: %s\n", key.c_str(), value.c_str());
      report_["backend"][key] = value;
    }
    report_["config"] = {{"ranks", backend_.size()},        {"iterations", options_.iterations},
                         {"repeats", options_.repeats},     {"type", options_.type},
                         {"operation", options_.operation}, {"share_memory", options_.share_memory}};
    report_["results"] = nlohmann::json::array();
    std::printf("# out of place is a copy and an all-reduce in place; there is no other\n");
    if (!peers_.empty()) {
      std::printf(
          "# of a peer: its time in place, how many times gradweave's that is, and the least and the most of it\n");
    }
    print_heading({"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
                   "busbw", "#wrong"},
                  {"limit", "ratio", "flag"}, true);
    print_heading({"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", ""},
                  {"(us)", "", "(ns)"}, false);
  }

  void print_heading(const std::array<const char*, 13>& columns, const std::array<const char*, 3>& limit,
                     bool with_names) const {
    std::printf("#%11s %12s %8s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s", columns[0], columns[1], columns[2],
                columns[3], columns[4], columns[5], columns[6], columns[7], columns[8], columns[9], columns[10],
                columns[11], columns[12]);
    if (options_.limit) {
      std::printf(" %9s %6s", limit[0], limit[1]);
    }
    if (memory_limit_) {
      std::printf(" %7s", limit[2]);
    }
    for (const peer_caller& each : peers_) {
      with_names ? std::printf(" %9s %6s %13s", each.name().c_str(), "ratio", "from..to")
                 : std::printf(" %9s %6s %13s", "(us)", "", "");
    }
    std::printf("\n");
  }

  void measure(std::size_t bytes) {
    const extent whole{data_.data(), bytes, 0};
    const auto reduce = [&] {
      run_collective(
          backend_,
          {.operation = collective::all_reduce, .kind = kind_, .reduce = {operation_, 1}, .data = {&whole, 1}});
    };
    const auto out_of_place = [&] {
      std::copy_n(source_.data(), bytes, data_.data());
      reduce();
    };
    const auto barrier = [&] { run_collective(backend_, {.operation = collective::barrier}); };
    figures got;
    got.peers.resize(peers_.size());
    for (std::size_t i = 0; i < options_.warm_ups; ++i) {
      out_of_place();
    }
    for (std::size_t repeat = 0; repeat < options_.repeats; ++repeat) {
      if (memory_limit_) {
        got.flags_ns.push_back(memory_limit_->flag_latency());
        got.limits.push_back(time_of(options_.iterations, [&] { memory_limit_->run(bytes / sizeof(float)); }));
      } else if (socket_limit_) {
        barrier();
        got.limits.push_back(time_of(options_.iterations, [&] { socket_limit_->run(bytes); }));
      }
      barrier();
      got.in_place.push_back(time_of(options_.iterations, reduce));
      barrier();
      got.apart.push_back(time_of(options_.iterations, out_of_place));
      std::fill_n(data_.data(), bytes, std::byte{0});  // or sums of sums grow without bound
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        const auto answer = peers_[i].measure(bytes, options_.iterations);
        auto& peer = got.peers[i];
        peer.times.push_back(answer.time_us);
        peer.ratios.push_back(answer.time_us / got.in_place.back());
        peer.wrong = answer.wrong;
        peer.chosen = answer.chosen;
      }
    }
    got.wrong = options_.check ? count_wrong(bytes, reduce) : 0;
    if (is_first()) {
      print(bytes, got);
      report_["results"].push_back(to_json(bytes, got));
    }
  }

  /// Of all ranks together.
  template <class Reduce>
  std::size_t count_wrong(std::size_t bytes, Reduce&& reduce) {
    std::int64_t wrong = 0;
    visit_element(kind_, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_arithmetic_v<T>) {
        T* const data = reinterpret_cast<T*>(data_.data());
        for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
          data[i] = value_of<T>(backend_.rank(), i);
        }
        reduce();
        for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
          wrong += data[i] == expected<T>(i) ? 0 : 1;
        }
      }
    });
    const extent all{reinterpret_cast<std::byte*>(&wrong), sizeof wrong, 0};
    run_collective(backend_, {.operation = collective::all_reduce, .kind = element_kind::int64, .data = {&all, 1}});
    return static_cast<std::size_t>(wrong);
  }

  template <class T>
  T expected(std::size_t i) const {
    if (operation_ == reduction_operation::sum) {
      return sum_of<T>(backend_.size(), i);
    }
    T result = value_of<T>(0, i);
    for (int rank = 1; rank < backend_.size(); ++rank) {
      const T next = value_of<T>(rank, i);
      result = operation_ == reduction_operation::min ? std::min(result, next) : std::max(result, next);
    }
    return result;
  }

  double bus_factor() const { return 2.0 * (backend_.size() - 1) / backend_.size(); }

  void print(std::size_t bytes, const figures& got) const {
    std::printf("%12zu %12zu %8s %6s %6d", bytes, bytes / element_bytes(kind_), options_.type.c_str(),
                options_.operation.c_str(), -1);
    for (const double time : {median(got.apart), median(got.in_place)}) {
      const double bandwidth = static_cast<double>(bytes) / time / 1000;
      std::printf(" %9.2f %7.2f %7.2f", time, bandwidth, bandwidth * bus_factor());
      options_.check ? std::printf(" %6zu", got.wrong) : std::printf(" %6s", "N/A");
    }
    if (options_.limit) {
      std::printf(" %9.2f %6.2f", median(got.limits), got.limit_ratio());
    }
    if (memory_limit_) {
      std::printf(" %7.0f", median(got.flags_ns));
    }
    for (const auto& peer : got.peers) {
      const auto [least, most] = std::minmax_element(peer.ratios.begin(), peer.ratios.end());
      std::printf(" %9.2f %6.2f %6.2f%s%-5.2f", median(peer.times), median(peer.ratios), *least, "..", *most);
      if (peer.wrong != 0) {
        std::printf(" %zu WRONG", peer.wrong);
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  nlohmann::json to_json(std::size_t bytes, const figures& got) const {
    const auto side = [&](const std::vector<double>& times) {
      const double bandwidth = static_cast<double>(bytes) / median(times) / 1000;
      return nlohmann::json{{"time_us", median(times)},
                            {"algbw_gb_s", bandwidth},
                            {"busbw_gb_s", bandwidth * bus_factor()},
                            {"repeats_us", times}};
    };
    nlohmann::json row = {{"bytes", bytes},
                          {"count", bytes / element_bytes(kind_)},
                          {"out_of_place", side(got.apart)},
                          {"in_place", side(got.in_place)}};
    if (options_.check) {
      row["wrong"] = got.wrong;
    }
    if (options_.limit) {
      row["limit"] = {{"kind", memory_limit_ ? "direct reduction in shared memory" : "raw sockets"},
                      {"time_us", median(got.limits)},
                      {"ratio", got.limit_ratio()},
                      {"repeats_us", got.limits},
                      {"flag_ns", got.flags_ns}};
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const auto& peer = got.peers[i];
      row["peers"][peers_[i].name()] = {{"algorithm", peer.chosen},     {"time_us", median(peer.times)},
                                        {"ratio", median(peer.ratios)}, {"repeats_us", peer.times},
                                        {"ratios", peer.ratios},        {"wrong", peer.wrong}};
    }
    return row;
  }

  const bench_options& options_;
  backend::tcp::backend_type backend_;
  element_kind kind_;
  reduction_operation operation_;
  std::size_t bytes_max_;
  decltype(backend_.allocate_arena(0)) data_;
  decltype(backend_.allocate_arena(0)) source_;
  std::optional<direct_limit> memory_limit_;
  std::optional<socket_limit> socket_limit_;
  std::vector<peer_caller> peers_;  // rank 0's
  nlohmann::json report_;
};

}  // namespace gradweave::bench
