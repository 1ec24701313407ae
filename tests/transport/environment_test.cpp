#include <gradweave/transport/environment.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
rendezvous_options from(const std::map<std::string, std::string>& variables) {
  return rendezvous_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string complaint(const std::map<std::string, std::string>& variables) {
  try {
    from(variables);
  } catch (const contract_violation& error) {
    return error.what();
  }
  return "none";
}
}  // namespace

TEST_CASE("rendezvous_from: no launcher's variable at all is one rank") {
  CHECK(from({}) == rendezvous_options{});
  CHECK(from({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}).size == 1);  // a shell inside an allocation
}

TEST_CASE("rendezvous_from: torchrun's variables") {
  const auto place = from({{"RANK", "2"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "0"},
                           {"MASTER_ADDR", "head"},
                           {"MASTER_PORT", "1234"},
                           {"TORCHELASTIC_RUN_ID", "abc"}});
  CHECK(place.rank == 2);
  CHECK(place.size == 4);
  CHECK(place.address == "head");
  CHECK(place.port == 1234);
  CHECK(place.job == "abc");
}

TEST_CASE("rendezvous_from: mpirun's variables, with a meeting place unless all ranks are on one host") {
  const auto one_host =
      from({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK(one_host.rank == 1);
  CHECK(one_host.address == "127.0.0.1");
  CHECK(one_host.ports == 16);
  CHECK(from({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).ports == 16);
  CHECK(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).size == 1);
  const auto named = from({{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "head"},
                           {"MASTER_PORT", "1234"},
                           {"PMIX_NAMESPACE", "4711"}});
  CHECK(named.job == "4711");
  CHECK(named.ports == 1);
  CHECK(complaint({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})
            .find("MASTER_ADDR is not set") != std::string::npos);
}

TEST_CASE("rendezvous_from: Slurm's variables, meeting at the first node") {
  const auto place = from(
      {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_NODELIST", "gpu[07-12,20]"}, {"SLURM_JOB_ID", "991"}});
  CHECK(place.rank == 3);
  CHECK(place.address == "gpu07");
  CHECK(place.job == "991");
  CHECK(detail::first_host("a,b") == "a");
  CHECK(detail::first_host("single") == "single");
  CHECK(detail::first_host("n[3,5]") == "n3");
  CHECK(detail::first_host("a,n[3,5]") == "a");
}

TEST_CASE("rendezvous_from: what is missing or malformed is named") {
  CHECK(complaint({{"RANK", "0"}}).find("RANK is set and WORLD_SIZE is not") != std::string::npos);
  CHECK(complaint({{"WORLD_SIZE", "2"}}).find("WORLD_SIZE is set and RANK is not") != std::string::npos);
  const std::map<std::string, std::string> whole{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  CHECK(complaint(whole) == "none");
  const auto with = [&](const char* name, const char* value) {
    auto changed = whole;
    changed[name] = value;
    return complaint(changed);
  };
  CHECK(with("RANK", "2").find("RANK is '2'; it has to be a whole number from 0 to 1") != std::string::npos);
  CHECK(with("RANK", "-1").find("RANK is '-1'") != std::string::npos);
  CHECK(with("WORLD_SIZE", "two").find("WORLD_SIZE is 'two'") != std::string::npos);
  CHECK(with("WORLD_SIZE", "0").find("WORLD_SIZE is '0'") != std::string::npos);
  CHECK(with("WORLD_SIZE", "").find("WORLD_SIZE is ''") != std::string::npos);
  CHECK(with("MASTER_PORT", "70000").find("MASTER_PORT is '70000'") != std::string::npos);
  CHECK(with("MASTER_PORT", "1 ").find("MASTER_PORT is '1 '") != std::string::npos);
  auto without = whole;
  without.erase("MASTER_ADDR");
  CHECK(complaint(without).find("MASTER_ADDR is not set") != std::string::npos);
  without = whole;
  without.erase("MASTER_PORT");
  CHECK(complaint(without).find("MASTER_PORT is not set") != std::string::npos);
}

TEST_CASE("rendezvous_from: a secret, by itself or in a file") {
  CHECK(from({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GRADWEAVE_SECRET", "one"}}).secret == "one");
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradweave_secret_" + std::to_string(::getpid()))).string();
  std::ofstream(file) << " two words\n\n";
  CHECK(from({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GRADWEAVE_SECRET_FILE", file}}).secret == "two words");
  std::ofstream(file) << "\n";
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GRADWEAVE_SECRET_FILE", file}}).find("which is empty") !=
        std::string::npos);
  std::filesystem::remove(file);
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GRADWEAVE_SECRET_FILE", file}}).find("which can't be read") !=
        std::string::npos);
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GRADWEAVE_SECRET", ""}})
            .find("GRADWEAVE_SECRET is set and empty") != std::string::npos);
}

TEST_CASE("rendezvous_from: a meeting file stands in for address and port") {
  CHECK(from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"GRADWEAVE_MEETING_FILE", "/shared/job"}}).file == "/shared/job");
  const auto mpirun = from({{"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"GRADWEAVE_MEETING_FILE", "/shared/job"}});
  CHECK(mpirun.file == "/shared/job");
}

TEST_CASE("rendezvous_from: interfaces, ours before Gloo's before NCCL's, and NCCL's by their beginnings") {
  std::map<std::string, std::string> variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"NCCL_SOCKET_IFNAME", "eth,ib0"}};
  CHECK(from(variables).interfaces == "eth*,ib0*");
  variables["NCCL_SOCKET_IFNAME"] = "=eth0,ib0";
  CHECK(from(variables).interfaces == "eth0,ib0");
  variables["NCCL_SOCKET_IFNAME"] = "^docker,lo";
  CHECK(from(variables).interfaces == "^docker*,lo*");
  variables["NCCL_SOCKET_IFNAME"] = "^=docker0";
  CHECK(from(variables).interfaces == "^docker0");
  variables["GLOO_SOCKET_IFNAME"] = "eth1";
  CHECK(from(variables).interfaces == "eth1");
  variables["GRADWEAVE_SOCKET_IFNAME"] = "eth2";
  CHECK(from(variables).interfaces == "eth2");
}

TEST_CASE("rendezvous_from: beside torchrun's own store, which has the port that torchrun gives") {
  const auto place = from({{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "head"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RUN_ID", "none"},
                           {"TORCHELASTIC_RESTART_COUNT", "3"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(place.port == 29501);
  CHECK(place.ports == 16);
  CHECK(place.job == "none of port 29500, start 3");
}
