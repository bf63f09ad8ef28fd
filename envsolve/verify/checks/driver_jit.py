"""The driver compiles a small PTX for the GPU, and the kernel computes the right values.

The PTX is of an old ISA that every supported driver takes and holds no machine code, so the driver must compile it.
Then the newest ISA that it takes is measured: what code written by a newer toolkit needs, beside its machine code.
"""

from __future__ import annotations

from check_driver import Driver, DriverError

NAME = "driver-jit"
RUNS_ON = "gpu"
ORDER = 20
NEEDS = ()
QUICK = True

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


def check(ordinal):
    """Compile, launch, and compare every value, with the oldest PTX and with the newest that the driver takes."""
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
