#include "quant/hadamard.h"

namespace dodona::quant {
namespace {

// Of 12 Paley's second construction over five elements, of 20 and
/// 28 Williamson's, of 40 Turyn's and Paley's.
constexpr std::uint64_t signs_of_12[] = {0x002, 0xAAB, 0x3C8, 0x96E, 0xF20, 0x5BA, 0xC8C, 0x6E6, 0x23C, 0xB96, 0x8F0, 0xE5A};
constexpr std::uint64_t signs_of_20[] = {0x933DE, 0x2E3BD, 0x5477B, 0xA0EF7, 0x499EF, 0x637C1, 0xC6BA2, 0x8D764, 0x1AEE8, 0x359F0,
                                         0x0FA53, 0x174A7, 0x26D4E, 0x45E9C, 0x83D39, 0xF7A6D, 0xEF4FA, 0xDEDD5, 0xBDF8B, 0x7BF36};
constexpr std::uint64_t signs_of_28[] = {0xCD69E7E, 0x9AD7C7D, 0x37AB8FB, 0x6D571F7, 0xD8AE3EF, 0xB3587DF, 0x66B4F3F,
                                         0xB467F43, 0x6ACBE87, 0xD593D8E, 0xAB27B9C, 0x564F7B8, 0xAC9AFF0, 0x5B31FE1,
                                         0x87FB325, 0x0FF66CA, 0x1DECD95, 0x39DDB2A, 0x71BF654, 0xE17ECA9, 0xC2FD9D2,
                                         0xFCF1299, 0xFBE2532, 0xF7C4AE4, 0xEF8D549, 0xDF1EA13, 0xBE3D4A6, 0x7E7A94C};
constexpr std::uint64_t signs_of_40[] = {0xFFFFEFFFFE, 0x615E4615E4, 0xC2BC8C2BC8, 0x8579285792, 0x0AF260AF26, 0x15E4C15E4C, 0x2BC982BC98,
                                         0x5793057930, 0xAF260AF260, 0x5E4C25E4C2, 0xBC984BC984, 0x7930A7930A, 0xF2614F2614, 0xE4C2AE4C2A,
                                         0xC9856C9856, 0x930AE930AE, 0x2615E2615E, 0x4C2BC4C2BC, 0x9857898578, 0x30AF230AF2, 0x00001FFFFE,
                                         0x9EA1B615E4, 0x3D437C2BC8, 0x7A86D85792, 0xF50D90AF26, 0xEA1B315E4C, 0xD43672BC98, 0xA86CF57930,
                                         0x50D9FAF260, 0xA1B3D5E4C2, 0x4367BBC984, 0x86CF57930A, 0x0D9EBF2614, 0x1B3D5E4C2A, 0x367A9C9856,
                                         0x6CF51930AE, 0xD9EA12615E, 0xB3D434C2BC, 0x67A8798578, 0xCF50D30AF2};

}  // namespace

std::span<const std::uint64_t> hadamard_signs(std::int64_t size) {
  switch (size) {
    case 12: return signs_of_12;
    case 20: return signs_of_20;
    case 28: return signs_of_28;
    case 40: return signs_of_40;
    default: return {};
  }
}

}  // namespace dodona::quant
