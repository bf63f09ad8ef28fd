"""The driver: it loads, starts and lists its GPUs; it loads machine code; it compiles PTX."""

from __future__ import annotations

import base64
import ctypes
import os
import re
import zlib
from pathlib import Path
from unittest import SkipTest

from check_driver import LIBRARY, Driver, DriverError, call, capability_of, number, version_of
from check_support import check

# CUresult of cuda.h: CUDA_ERROR_STUB_LIBRARY (a toolkit's stand-in for linking), CUDA_ERROR_NO_DEVICE.
NO_DEVICE = (34, 100)

# Compute capabilities of parts that neither give machine code to others of their major nor take it from them: Tegra.
ISLANDS = ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1))
# The cubins are of the kernel in PTX below, made by ptxas 11.8.89 (sm_50 to sm_90) and 12.8.93 (sm_100, sm_120): old
# ones, which every driver that knows the GPU loads. A test makes them again and compares them byte by byte.
# SM number and length of each cubin.
SIZES = ((50, 2248), (60, 2248), (70, 2664), (80, 2792), (90, 2688), (100, 5288), (120, 5288))
CUBINS = (
    "c-rloe`p)m9l*c$OFGMnB)3lE&@8^X4)xkhR-7eqpamsuv;J@rH-pY(16h&e+ElhQNpa;g5IOCdtdtT;3;APZ8I(4#FgoZ8+aJYb{UaC#*(fB8v3"
    "cp}*1?KH$7YHX?Y(#Jq`P-_)-QYU*!#lyd+*)*zI%7?*XR2^`PAb>2Sh>G=>=Ux_z0$<Dw?Y61x42b$^b-R5G3@s4FrI2emq~u72?OxnW1MUO*)n"
    "zpGp=XJT)Djm>SDKxR5Fq!udozor=Y$lCgL)S-I$toga_qQb~skiOf{K5T7bU9IoY3>2N$zn8-{u(LkoUHEwP!8_&fjZLM~bC^{riZTT;ge6KD4J"
    "(BOS<qx3au8^r7L059W3Nq5zLcU)=C;4}o&O1!!dt@?Rga|qwL}{Oj#t>?!;0I~5ALLDbT0OegVn-!SWbr<b?k$7-H5o#<t}QBzAbkZLPa9=KQ4R"
    "U}d(atetV*@f_%78tQv0ZmP(7&9$D>-MIz)9B)f&}(R7a@R?L}%YQhSlwi_~7E_9C?xsl7<;k#ue+eF1*p@?VpGd9@p`yan~+87O(r4*`4!b>)>s"
    "5jGKhGkE#-{_EYSUmk$csnB5&X;k<Sz#ixlBH#UoH+l>H*^Oq_14>CsKMg@V$KD?f>eYXG(|h?gT*3B#MMJD_Pz0|6vt2`yv`GOqH1rGa-0jh`-J"
    "pobPW$8wQ1)QE-3rnn(01SSF5H4k#`QmZVbpKvvUi~jrEUo7bNkaEoGF)s(Hq9~1urb)>#SWxw<v->W*yfdEI)B5Z<cl!`#)3tVGaAc^|@!0^R!^"
    "GvTp%dlZ?sMMfKNpm1XTiw9*Jo8*P-CatB=Oqtt%HWUo5dzoEYaoBerezrf_HjGm_Ngnb7^+TbC<YAZXe^8#JZ&9Wd{U$~^(dNigSwo^>2D=QZnt"
    "(vM;OzmW4T(oM|uF?CQYLH_d<{ZO0hI0((7|t;U$1KCy6**>E;~c{|hI7mv<(RoPdO`~vFmX)#`sA2o>e%t;Vq=I7Qb5>%&4^ob{x`X&#iv}ElYB"
    "0m)aJrTvMv9b3s>p<<g+bYWhA{&J;#FTJ&ASDKU*sGfm)s|^{M1kFZ0cn7GFFsakFH+qUjaLoz)_k*A!#!->;t=yr!6Vt#ZCwCe<3;X7Ji*BfPew"
    "%4?%|Zv7wd+GD1DM&Ves?nFF+Mhu>g7|cEn!VkYh6ARBT2mss&!sZ!Ta2p<S0hFd2(|zdZ4M6V+x(|x4dttsC{5X9SZQP@a5?l|$!OD_RlHl(_5Q"
    "}uR!1tRE!nSFVz<>nE{%R0r^NPN+eZCdo9aMi&QOF%}{Z|jeD|ryfIQl$9+IMiqTK~6DdXcOiFG(;LgsvI$W@b;XHRt`dNzUt_1wU(&^Ok7AbIkl"
    ">IqwaJI<cG;odJ$5>&A&oEplR?WamVmgZ*U}PAp0FapI5B(dO{{qx420uy9_*E>wdvv(!FqdSSi>IJ1&r;!M<kYRQE&=h~X%%&hEecTTiw)~?a})"
    "#A)3MS>D7Fw8lVbLJ{?W@!yLvt;4S&MIeiwZNH1TyR&DjEUHCn6f2szT~n_IkP3M{JotkcNL^Eo`z*SClMF^@`S9z1-|F+7|ul8IXk0>WHs5m)o<"
    "g>dBmABI%mq8L;ls^%sZXtoV&g`cc@9uEw;$HBQ0|7_$qO3sZP#~`kLe1aTm_*lB}AwYxI7#IQIhW1dSFrN;y|Xe|>k3bDN+%H*jQRJz(zIJzbsO"
    "m*tw@k&W^HfeZgO!>!wEajRxWR?MrCiB}~PuSzCfl^9;Fmrb*Dts*?@)4zv@M8AdOq!#w6(=Q5TvH+<%NBnw5u5v~;fUYa$%7i@@sB#GAjwIrMlZ"
    "qni91w&X{W?dyLd#zXg8w9t>xe_zojBz5i(;8{I&MQxK({|l(}*Ls6-8n%g3dLwh%*=t(bvGbIb<1@*Aa(s;j)%ei$gCr$)O=y@M@DBy5R6#U2@>"
    "iX%`M1F}~|I$)R&Ca_Azpf5K$%^j-W-hddG;kgU(ia%5Kx4m9GmW)8#$%YpB@aH!$@ZxO8wEIV+dY~nCmKQh|PgU#A0rss3piw(`*&n>87Jm(hCk"
    "w5pTCjK;!p>ucB@gAVpli<Ppsh}BjPh<R<DWotd6`t2I)JP|ePp5LLABLqDa;bbOH;qmr6w@ZN@j`Qi7f+|3%f++fB$dr&3Yo%8HdXUCl8JbBGL="
    "iXJr}vg-iu^b-UyT7R*7S)4MXSGL9Wv7s!P^uZyV3`?a9<+I5ReuPZc6A!yp!$nvPY<AAI~^OfMgc#Nz3Rcz&(MN&TVpmE;++&e?z3_!dRdD6@`#"
    "jD5!o8!Gvg_1neI&;;i=`@;hEKm4|J=qXY@aL4=)+@iC1A4dN1p=Y0b?8$xFqnTW`vJYTW>^kqpadEPf6^f{jA3dIoYq*mq(sBIZK`Uf3>HKyL^="
    "K-dPiZ>_!h_qjXR!+J-3j}TPo$Gt0vW|fRu2E|*X>ie@XlSk26qnbiNqrCjd(6GuH`3VJ0cN{whteFldSC%(9R|p>o)SCJjVXhp;q=f>_d4>ep9I"
    ")ziAkV?<772j{cLE>@9xs`xKRg`32-KC?KNti5{WSUs&I!`WDsLZ!r5^o>ky8;(z^#K70@3UrjOo81la^y@33&@00Q>{EYf%*Qq`0kInZJ|4XU(U"
    "xyk0t6TTK7OMW&r5EHfJWtXpzTe9JSD5=>T)1#qHSy~)^ytF(&>G(^`<BQay^n0@)wBSDh|?b5S9)5IQCjR#Jzv3oTwaJW9uHm~P4yuITt47gf+H"
    "yX5=0%mRG~e9>c^{@B<#iI2Ll635bYrAHeN7AA!_y&uFB54zR=Xy@?m4wCqIEKRk!~4&7~UJJCF9lt8e$b^YgbmC*gw!zx?-z^t#{cyZ6Q)U%hrD"
    "amIh`Aus&qp~m-ET(|KejQ#NuWL?kxsPkOVmFK{b=Q?fWb)E|~$a6v4+g|H<%e>HByd_MB=a|r3yyZNtbdKQ{Hs0`|Tf9ZCKi=Z4-lDqIQu_-`d6"
    "vNUQu`=V^(gi0drjesHV6ABT;eq^Gxl!ro)oob{e_Fv-u(MIzk~fxfrP(p_cta(sK)buroU7B|B+C8&87WDKYl{<*!D*}^~IZ>af>%Oe0TIX#GBr"
    "tb=t<TYMlpe;|Jk5$=mN@|C(goE7<q96&c^7zdy^XKG&}6k7#-$Z9m%|j|i1ESuP#&I}a?j{YM16o7nF^=eLf(jV}G4p!QM5{x5#({KNJ^2m8|k`"
    "FvutAKqZ?=Z&<1Z2$jAAlI@IV?VyZeZ4cwuTaJh9G>5>zgT1aG2)Fz+>Mnk!K&H#Uo&=!X?!;lZ}gZmTqNoe7j?5U#`kMdi*d>#k5lqEC680`I3<"
    "r$t{kTvSod*C;BiVGr{uzg3y)LsI3<r$@;D`rQ}Q?^k5lqEC680CvpD5{0NPtUQ~"
)

# An old ISA that every supported driver takes.
OLDEST = "6.0"
# Every number that an ISA may have from the oldest on; numbers that were never given out are refused, too.
NEWER = tuple("{}.{}".format(major, minor) for major in range(6, 13) for minor in range(10))

# values[i] = 3 * values[i] + i
PTX = """
.version {version}
.target sm_50
.address_size 64

.visible .entry scale_and_add(.param .u64 values, .param .u32 count)
{{
    .reg .pred %p;
    .reg .b32 %block, %width, %thread, %i, %count, %value;
    .reg .b64 %base, %at;

    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.s32 %i, %block, %width, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %p, %i, %count;
    @%p bra done;
    ld.param.u64 %base, [values];
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %at, %i, 4;
    add.s64 %at, %base, %at;
    ld.global.u32 %value, [%at];
    mad.lo.s32 %value, %value, 3, %i;
    st.global.u32 [%at], %value;
done:
    ret;
}}
"""


@check(
    "driver",
    runs_on="host",
    order=10,
    quick=True,
    variables=("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"),
)
def start():
    """Start the driver and name its GPUs.

    Without any NVIDIA GPU there is nothing to check; a GPU that the driver does not offer is a failure.
    """
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise no_gpu("{} cannot be loaded: {}".format(LIBRARY, error)) from None
    try:
        call(cuda, "cuInit", 0)
    except DriverError as error:
        if error.status in NO_DEVICE:
            raise no_gpu(str(error)) from None
        raise
    runs = "{}.{}".format(*version_of(cuda))
    count = number(cuda, "cuDeviceGetCount")
    if count < 1:
        raise no_gpu("the driver lists no CUDA-capable device")
    devices = [describe(cuda, ordinal) for ordinal in range(count)]
    seen = {"cuda": runs, **versions(kernel_driver(), loaded_library())}
    mode = "; libcuda of cuda-compat" if seen.get("mode") == "compat" else ""
    detail = "CUDA {} driver{}; {}".format(runs, mode, "; ".join(devices))
    return {"detail": detail, "devices": devices, "seen": seen}


def versions(kernel, library):
    """Distinguish the driver's own libcuda, whose name has exactly the kernel driver's version, from cuda-compat's."""
    seen = {name: value for name, value in (("kernel_driver", kernel), ("libcuda", library)) if value}
    named = re.search(r"\.so\.(\d{3,}(?:\.\d+)+)$", library or "")
    if kernel and named:  # WSL and Jetson name the file without it.
        seen["mode"] = "native" if named.group(1) == kernel else "compat"
    return seen


def kernel_driver():
    """The version of the kernel's driver; None if it does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d{3,}(?:\.\d+)+)", text)
    return match.group(1) if match else None


def loaded_library():
    """The file of the libcuda that this process has loaded; None if the system does not say."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(None, 5)[5] for line in lines if "/libcuda.so" in line), None)


def describe(cuda, ordinal):
    """Name one GPU: ``NVIDIA H100 80GB HBM3 (cc 9.0)``."""
    device, name = number(cuda, "cuDeviceGet", ordinal), ctypes.create_string_buffer(256)
    call(cuda, "cuDeviceGetName", name, len(name), device)
    return "{} (cc {}.{})".format(name.value.decode(errors="replace"), *capability_of(cuda, device))


def no_gpu(problem):
    """Judge the lack of a usable GPU: a failure if there is an NVIDIA GPU to be used."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    # What stands behind the first number that is none is not looked at.
    if hidden is not None and hidden.split(",")[0].strip() in ("", "-1"):
        return SkipTest("{}; CUDA_VISIBLE_DEVICES={!r} hides every GPU".format(problem, hidden))
    card = nvidia_card()
    if card:
        return RuntimeError("{}, although there is an NVIDIA GPU ({})".format(problem, card))
    return SkipTest("{}; this machine has no NVIDIA GPU".format(problem))


def nvidia_card():
    """Find a sign of an NVIDIA GPU that needs no driver: a device node (WSL and Jetson too) or a PCI display device."""
    for pattern in ("nvidia[0-9]*", "dxg", "nvhost-gpu"):
        for node in Path("/dev").glob(pattern):
            return str(node)
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return "PCI " + device.name
    return None


@check("driver-cubin", runs_on="gpu", order=15, quick=True)
def load_cubin(ordinal):
    """Load the cubin of the GPU's major, launch its kernel, and compare every value."""
    driver = Driver(ordinal)
    major, minor = driver.capability
    fitting = [(arch, cubin) for arch, cubin in cubins() if arch // 10 == major and arch % 10 <= minor]
    if not fitting or (major, minor) in ISLANDS:
        raise SkipTest("no cubin for compute capability {}.{} comes with this check".format(major, minor))
    arch, cubin = fitting[-1]
    driver.prove(driver.load(cubin))
    return {"detail": "the driver loads a cubin for sm_{}, and all values are right".format(arch)}


def cubins():
    """Yield SM number and content of each cubin."""
    whole, start = zlib.decompress(base64.b85decode(CUBINS)), 0
    for arch, size in SIZES:
        yield arch, whole[start : start + size]
        start += size


@check("driver-jit", runs_on="gpu", order=20, quick=True)
def compile_ptx(ordinal):
    """Compile, launch, and compare every value, with the oldest PTX and with the newest that the driver takes.

    PTX holds no machine code, so the driver must compile it. Code written by a newer toolkit needs, beside its
    machine code, the newest ISA that the driver takes: it is measured.
    """
    driver = Driver(ordinal)
    driver.prove(driver.load(ptx(OLDEST)))
    newest = [version for version in NEWER if takes(driver, version)][-1]
    driver.prove(driver.load(ptx(newest)))
    return {
        "detail": "the driver compiles PTX {} to {} and no newer, and all values are right".format(OLDEST, newest),
        "seen": {"newest_ptx": newest},
    }


def takes(driver, version):
    """Whether the driver compiles PTX of that version."""
    try:
        driver.load(ptx(version))
    except DriverError:
        return False
    return True


def ptx(version):
    """The kernel, as PTX of a version."""
    return PTX.format(version=version).encode()
