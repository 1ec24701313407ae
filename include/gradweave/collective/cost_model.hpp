/// @file
/// What messages and reductions cost, and which ranks share a host: what a simulation in virtual time starts from.
///
/// The costs are those of the literature: alpha seconds a message, beta seconds a byte, gamma seconds a reduced byte
/// (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005, section 3),
/// and of alpha the part that keeps a sender busy (o of Culler et al., LogP, PPoPP 1993).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>

namespace gradweave {

/// Of messages between two ranks that have no other traffic: `bytes` bytes arrive after alpha + bytes * beta.
struct link_cost {
  double alpha_s = 0;           ///< seconds until the first byte of a message arrives
  double overhead_s = 0;        ///< of alpha: how long the sender is busy and begins no other message
  double beta_s_per_byte = 0;   ///< the inverse of the bandwidth in each direction
  double gamma_s_per_byte = 0;  ///< to combine a byte that came this way with one that was there

  friend bool operator==(const link_cost&, const link_cost&) = default;
};

/// What steps of schedules cost.
struct cost_model {
  link_cost between = {};        ///< ranks of different hosts; a host's ranks share its link
  link_cost within = {};         ///< ranks of one host; gamma is that of all work in memory, also on what peers lend
  double divide_s_per_byte = 0;  ///< of sums; 0 where nothing is divided
  std::size_t piece_bytes = std::size_t{64} << 10;  ///< how much the executor receives before it reduces that
  bool has_openings = true;  ///< payload goes to peers only whose opening has come, as the handshake has it

  friend bool operator==(const cost_model&, const cost_model&) = default;

  const link_cost& link(bool is_between) const { return is_between ? between : within; }

  /// Throws contract_violation that names the number which is not allowed.
  void check() const {
    for (const auto& [name, link] : {std::pair("between", between), std::pair("within", within)}) {
      const std::string costs = std::string("cost_model: of the links ") + name + " hosts, ";
      require_seconds(link.alpha_s, costs + "alpha");
      require_seconds(link.overhead_s, costs + "overhead");
      require_seconds(link.beta_s_per_byte, costs + "beta");
      require_seconds(link.gamma_s_per_byte, costs + "gamma");
      if (link.overhead_s > link.alpha_s) {
        violate(costs + "overhead is " + std::to_string(link.overhead_s) + " s, more than alpha, " +
                std::to_string(link.alpha_s) + " s; it is a part of it");
      }
    }
    require_seconds(divide_s_per_byte, "cost_model: the time to divide a byte");
    require(piece_bytes != 0, "cost_model: piece_bytes is 0; a piece has at least one byte");
  }

 private:
  static void require_seconds(double value, const std::string& what) {
    if (!std::isfinite(value) || value < 0) {
      violate(what + " is " + std::to_string(value) + "; it has to be a number of seconds, 0 or more");
    }
  }
};

/// How many ranks each host has. Ranks are numbered host by host, as launchers do.
class host_topology {
 public:
  explicit host_topology(std::vector<int> ranks_by_host) : first_{0} {
    require(!ranks_by_host.empty(), "host_topology: there are no hosts; give the ranks of each");
    for (std::size_t host = 0; host < ranks_by_host.size(); ++host) {
      if (ranks_by_host[host] < 1) {
        violate("host_topology: host " + std::to_string(host) + " has " + std::to_string(ranks_by_host[host]) +
                " ranks; each has one at least");
      }
      host_of_.insert(host_of_.end(), static_cast<std::size_t>(ranks_by_host[host]), static_cast<int>(host));
      first_.push_back(static_cast<int>(host_of_.size()));
    }
    is_even_ = std::ranges::all_of(ranks_by_host, [&](int ranks) { return ranks == ranks_by_host.front(); });
  }

  static host_topology even(std::size_t hosts, int ranks_a_host) {
    return host_topology(std::vector<int>(hosts, ranks_a_host));
  }

  int ranks() const { return first_.back(); }
  int hosts() const { return static_cast<int>(first_.size()) - 1; }
  int ranks_of(int host) const { return first_[static_cast<std::size_t>(host) + 1] - first_rank(host); }
  int first_rank(int host) const { return first_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  /// A rank's number among those of its host.
  int place_of(int rank) const { return rank - first_rank(host_of(rank)); }
  /// All hosts have equally many ranks.
  bool is_even() const { return is_even_; }
  /// By rank, as rank_groups takes them.
  const std::vector<int>& host_by_rank() const { return host_of_; }

  friend bool operator==(const host_topology&, const host_topology&) = default;

 private:
  std::vector<int> first_;  // host: its first rank; then how many ranks there are
  std::vector<int> host_of_;
  bool is_even_ = true;
};

}  // namespace gradweave
