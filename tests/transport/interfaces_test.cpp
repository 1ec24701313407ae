#include <gradweave/transport/interfaces.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;
using boost::asio::ip::make_address;

TEST_CASE("is_wanted_interface: names, beginnings, all but") {
  CHECK(is_wanted_interface("eth0", "eth0"));
  CHECK_FALSE(is_wanted_interface("eth0", "eth01"));
  CHECK(is_wanted_interface("ib0,eth*", "eth7"));
  CHECK_FALSE(is_wanted_interface("ib0,eth*", "ib1"));
  CHECK(is_wanted_interface("^docker*,lo", "eth0"));
  CHECK_FALSE(is_wanted_interface("^docker*,lo", "docker0"));
  CHECK_FALSE(is_wanted_interface("^docker*,lo", "lo"));
  CHECK_FALSE(is_wanted_interface(",", ""));
}

TEST_CASE("choose_address: of the wanted interface, of the meeting place's family where it has one") {
  const std::vector<interface_address> present{{"lo", make_address("127.0.0.1")},
                                               {"eth0", make_address("10.0.0.5")},
                                               {"eth0", make_address("fd00::5")},
                                               {"ib0", make_address("fd00:1::5")}};
  const auto v4 = make_address("10.0.0.1"), v6 = make_address("fd00::1");
  CHECK_FALSE(choose_address("", v4, present));
  CHECK(choose_address("eth0", v4, present) == make_address("10.0.0.5"));
  CHECK(choose_address("eth0", v6, present) == make_address("fd00::5"));
  CHECK(choose_address("ib0", v4, present) == make_address("fd00:1::5"));
  CHECK(choose_address("^ib0", v4, present) == make_address("10.0.0.5"));  // and not the loopback interface
  std::string said;
  try {
    choose_address("eth1", v4, present);
  } catch (const contract_violation& error) {
    said = error.what();
  }
  CHECK(said.find("is 'eth1' (GRADWEAVE_SOCKET_IFNAME); there are: lo (127.0.0.1), eth0 (10.0.0.5)") !=
        std::string::npos);
}

TEST_CASE("name_with_interface: an address and who has it") {
  const std::vector<interface_address> present{{"eth0", make_address("10.0.0.5")}};
  CHECK(name_with_interface(make_address("10.0.0.5"), present) == "10.0.0.5 (eth0)");
  CHECK(name_with_interface(make_address("10.0.0.6"), present) == "10.0.0.6");
}

TEST_CASE("interface_addresses: this host has a loopback interface") {
  const auto present = interface_addresses();
  CHECK(std::any_of(present.begin(), present.end(), [](const auto& each) { return each.address.is_loopback(); }));
}
