// Jobs over two hosts, which are network namespaces of this machine: which addresses ranks use, and a cable that is cut.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/hosts.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/rank_jobs.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// False, and says why, where there can be no such test.
bool possible(const host_pair& hosts) {
  if (const std::string obstacle = hosts.obstacle(); !obstacle.empty()) {
    MESSAGE("SKIPPED: ", obstacle);
    return false;
  }
  return true;
}

/// Ranks 0 and 1 are on the first host, rank 2 on the second.
rank_job_options three_ranks(const host_pair& hosts, const std::string& address) {
  rank_job_options options{.size = 3, .all = {"steps=50"}, .address = address};
  options.prepare_of = [&hosts](int rank) { return hosts[rank == 2 ? 1 : 0].entry(); };
  return options;
}

void check_success(const rank_job& job) {
  REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 40s), job.transcript());
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_MESSAGE(job.story(rank).code == "end", job.transcript());
  }
}

/// The addresses that the ends of a rank's connections have, without ports and in order, each once.
struct addresses {
  std::vector<std::string> own;
  std::vector<std::string> peers;
};

addresses addresses_of(const rank_job& job, int rank) {
  addresses found;
  const auto add = [](std::vector<std::string>& to, const std::string& place) {
    const std::string address = place.substr(0, place.rfind(':'));
    if (std::find(to.begin(), to.end(), address) == to.end()) {
      to.insert(std::upper_bound(to.begin(), to.end(), address), address);
    }
  };
  for (const auto& [own, peer] : job.story(rank).connections) {
    add(found.own, own);
    add(found.peers, peer);
  }
  return found;
}

using texts = std::vector<std::string>;

}  // namespace

TEST_CASE("two hosts: a job with two ranks on rank 0's host works, and no loopback address reaches the other host") {
  const testing::watchdog guard("two hosts");
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0);
  SUBCASE("all meet at the address that both hosts can reach") {
    const rank_job job(three_ranks(hosts, "10.77.0.1"));
    check_success(job);
    CHECK(addresses_of(job, 2).own == texts{"10.77.0.2"});
    CHECK(addresses_of(job, 2).peers == texts{"10.77.0.1"});
  }
  SUBCASE("those on rank 0's host meet at its loopback address") {
    rank_job_options options = three_ranks(hosts, "127.0.0.1");
    options.prepare_of = [&](int rank) -> std::function<bool()> {
      return [enter = hosts[rank == 2 ? 1 : 0].entry(), rank] {
        return enter() && (rank != 2 || ::setenv("MASTER_ADDR", "10.77.0.1", 1) == 0);
      };
    };
    const rank_job job(options);
    check_success(job);
    CHECK(addresses_of(job, 2).peers == texts{"10.77.0.1"});
  }
}

TEST_CASE("two hosts: rank 0 alone on its host, the others on one") {
  const testing::watchdog guard("rank 0 alone");
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0);
  rank_job_options options = three_ranks(hosts, "10.77.0.1");
  options.prepare_of = [&](int rank) { return hosts[rank == 0 ? 0 : 1].entry(); };
  const rank_job job(options);
  check_success(job);
  CHECK(addresses_of(job, 0).peers == texts{"10.77.0.2"});
}

TEST_CASE("several hosts, wrong network interface picked: GRADWEAVE_SOCKET_IFNAME chooses another") {
  const testing::watchdog guard("two networks");
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0);
  hosts.connect(1);
  rank_job_options options = three_ranks(hosts, "10.77.0.1");
  options.variables = {"GRADWEAVE_SOCKET_IFNAME=wire1"};
  SUBCASE("they meet over the first and talk over the second") {}
  SUBCASE("they meet over the second, and the first is cut") {
    options.address = "10.77.1.1";
    hosts.cut(0, 1);
  }
  const rank_job job(options);
  check_success(job);
  CHECK(addresses_of(job, 2).own == texts{"10.77.1.2"});
  CHECK(addresses_of(job, 2).peers == texts{"10.77.1.1"});
  CHECK(addresses_of(job, 1).own == texts{"10.77.1.1"});
}

TEST_CASE("two hosts with IPv6 alone") {
  const testing::watchdog guard("IPv6");
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0, false);
  const rank_job job(three_ranks(hosts, "fd77:0::1"));
  check_success(job);
  CHECK(addresses_of(job, 2).own == texts{"fd77::2"});
  CHECK(addresses_of(job, 2).peers == texts{"fd77::1"});
}

TEST_CASE("host name resolves to 127.0.1.1 and the mesh fails with no error: it works, or both addresses are named") {
  const testing::watchdog guard("127.0.1.1");
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0);
  const scratch_folder folder;
  std::ofstream(folder.path() + "/head") << "127.0.0.1 localhost\n127.0.1.1 head\n";
  std::ofstream(folder.path() + "/other") << "127.0.0.1 localhost\n10.77.0.1 head\n";
  hosts[0].use_names(folder.path() + "/head");
  SUBCASE("on rank 0's own host: it works") {
    hosts[1].use_names(folder.path() + "/other");
    const rank_job job(three_ranks(hosts, "head"));
    check_success(job);
    CHECK(addresses_of(job, 2).peers == texts{"10.77.0.1"});
  }
  SUBCASE("on the other host too: its rank says where it looked, the others who is missing") {
    hosts[1].use_names(folder.path() + "/head");
    rank_job_options options = three_ranks(hosts, "head");
    options.all.push_back("meet_timeout_ms=2000");
    const rank_job job(options);
    REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 40s), job.transcript());
    CHECK_MESSAGE(job.story(2).sentence.find("127.0.1.1") != std::string::npos, job.transcript());
    for (const int rank : {0, 1}) {
      CHECK_MESSAGE(job.story(rank).sentence.find("did not come within 2000 ms: 2") != std::string::npos,
                    job.transcript());
    }
  }
}

TEST_CASE("two hosts: the cable is cut in the middle of the training, and all ranks end") {
  const testing::watchdog guard("cut cable", 120s);
  const host_pair hosts;
  if (!possible(hosts)) {
    return;
  }
  hosts.connect(0);
  rank_job_options options = three_ranks(hosts, "10.77.0.1");
  options.all = {"steps=1000000", "timeout_ms=3000"};
  SUBCASE("payload that fits into what the kernel takes") {}
  SUBCASE("much payload") { options.all.push_back("sizes=2000000,1000"); }
  const rank_job job(options);
  const auto& ranks = job.ranks();
  const auto begun = [](const auto& each) { return each->has_printed("begun "); };
  REQUIRE_MESSAGE(
      watch_until(ranks, [&] { return std::all_of(ranks.begin(), ranks.end(), begun); }, 30s), job.transcript());
  hosts.cut(0, 1);
  const auto cut_at = process::clock::now();
  REQUIRE_MESSAGE(watch_to_the_end(ranks, 40s), job.transcript());
  const auto took = process::clock::now() - cut_at;
  for (int rank = 0; rank < 3; ++rank) {
    const rank_story told = job.story(rank);
    CHECK_MESSAGE(job.rank(rank).status() == 1, job.transcript());
    CHECK_MESSAGE((told.code == "timed out" || told.code == "peer lost"), job.transcript());
    CHECK_MESSAGE(told.step >= 0, job.transcript());
  }
  // Neither side hears the other any more: each names one over there.
  CHECK_MESSAGE(job.story(0).rank == 2, job.transcript());
  CHECK_MESSAGE(job.story(0).sentence == job.story(1).sentence, job.transcript());
  CHECK_MESSAGE(job.story(2).rank < 2, job.transcript());
  MESSAGE(std::string("cut cable, with a timeout of 3000 ms: the last rank ended after ")
          << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms");
}
